"""Submits and cancels until it is killed, two minutes at most: ``scheduler_server.py STATE FILE-FOR-IDS``."""

from __future__ import annotations

import random
import sys
import threading
import time
from concurrent.futures import InvalidStateError
from contextlib import suppress
from pathlib import Path

from scheduler_support import ManualWorkers, Task, a_scheduler, a_store, an_order


def main(state: Path, written: Path) -> None:
    def succeed(task: Task) -> None:
        with suppress(InvalidStateError):  # it was stopped
            task.succeed()

    def answer(task: Task) -> None:
        threading.Timer(random.random() * 0.05, succeed, (task,)).start()

    with (
        a_store(state) as store,
        a_scheduler(state, ManualWorkers(2, answer), store, pause=0.05) as scheduler,
        written.open("a", buffering=1) as ids,
    ):
        end = time.monotonic() + 120
        while time.monotonic() < end:
            job = scheduler.submit(an_order(random.randrange(40) if random.random() < 0.5 else random.getrandbits(60)))
            ids.write(f"{job.id}\n")
            if random.random() < 0.1:
                scheduler.cancel(random.choice(scheduler.jobs(20)).id)
            threading.Event().wait(random.random() * 0.03)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
