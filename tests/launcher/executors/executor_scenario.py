"""One scenario for workers of every kind; prints what came of it as JSON. ``python -m ... [DASK_ADDRESS]``.

Started by mpiexec, rank 0 prints and the others work; each rank says at the end that it is through.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from shardc.hlo.errors import ShardcError
from shardc.launcher.executors.limits import TaskLimits
from shardc.launcher.executors.open_executor import Running, Workers, open_executor
from tests.launcher.executors.executor_tasks import BAD_TASKS

__all__ = ["scenario"]

LIMITS = TaskLimits(seconds=60)


def problem(running: Running) -> str:
    error = running.future.exception(60)
    assert isinstance(error, ShardcError), error
    return f"{type(error).__name__}: {error.what}"


def scenario(workers: Workers) -> dict[str, Any]:
    """Answers, errors, progress, stopping: the same for all kinds but for ``kind``."""

    def ask(task: str, payload: bytes = b"", limits: TaskLimits = LIMITS) -> Running:
        return workers.submit(task, payload, limits)

    found: dict[str, Any] = {"kind": workers.kind, "count": workers.count}
    many = [ask("echo", b"%d" % n) for n in range(20)]
    found["answers"] = [int(running.future.result(60)) for running in many]
    large = os.urandom(3_000_000)
    found["large"] = ask("echo", large).future.result(60) == large
    wrong = [ask("refuse", b"otherwise"), ask("fail"), ask("abort"), ask("leave"), ask("unknown")]
    wrong += [ask("for_ever", limits=TaskLimits(0.3)), ask("fill_memory", limits=TaskLimits(60, memory_bytes=1 << 29))]
    found["problems"] = [problem(running) for running in wrong]
    heard: list[Mapping[str, Any]] = []
    begun = [threading.Event() for _ in range(workers.count)]
    asleep = [
        workers.submit("sleep", b"600", LIMITS, lambda news, e=e: (heard.append(news), e.set())) for e in begun
    ]  # fmt: skip
    found["begun"] = all(e.wait(60) for e in begun)
    waiting = ask("echo", b"last")
    for running in asleep:
        running.stop()
    found["stopped"] = [problem(running) for running in asleep]
    found["stages"] = [news["stage"] for news in heard]
    found["pids"] = [news["pid"] for news in heard]
    found["last"] = waiting.future.result(60).decode()
    return found


def main(address: str) -> None:
    with open_executor(dask=address, tasks=BAD_TASKS) as workers:
        if workers is not None:
            found = scenario(workers)
            left = workers.submit("sleep", b"600", LIMITS)  # the end of the block ends it
            time.sleep(0.2)
    if workers is not None:
        print(json.dumps({**found, "left": problem(left)}), flush=True)
    print("through", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:] or [""])
