"""What tests of the scheduler share: workers that do what the test says, stores and schedulers in a folder."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shardc.hlo.codec import plain
from shardc.launcher.executors.limits import TaskLimits
from shardc.launcher.executors.running import Kind, Running, Workers
from shardc.launcher.executors.tasks import Progress
from shardc.service.jobs import Job
from shardc.service.orders import Order, PartitionOrder, from_json
from shardc.service.scheduler.journal import Journal
from shardc.service.scheduler.scheduler import Scheduler
from shardc.service.store.store import Store
from shardc.service.workers.package import ORDER_FILE, pack, unpack
from shardc.service.workers.pieces import PART_FILE, PIECE_FILE, PIECES_FILE, OrderPart, OrderPiece, Spent, WantedPieces

PROGRAM = b"HloModule tiny\n\nENTRY main {\n  ROOT x = f32[8,4] parameter(0)\n}\n"

DEADLINE = 30.0


@dataclass
class Task:
    """An order that workers were given, or a part of one, and how a test ends it."""

    order: Order
    part: OrderPart
    files: Mapping[str, bytes]
    progress: Progress | None
    limits: TaskLimits = field(default_factory=TaskLimits)
    running: Running = field(default_factory=lambda: Running("order"))

    def succeed(self, text: bytes = b"{}") -> None:
        self.running.future.set_result(pack({"report.json": text}, {"kind": "partition"}))

    def want(self, *pieces: str, notes: str = "notes", done: int = 0, of: int = 0) -> None:
        """Pieces first; all of them need the order's program."""
        asked = tuple(OrderPiece(self.order.program, text) for text in pieces)
        wanted = WantedPieces(asked, notes, "trying", done, of or len(pieces), Spent({"read": 1.0}))
        self.running.future.set_result(pack({PIECES_FILE: plain.to_json(wanted).encode()}, {}))

    def find(self, text: str = "") -> None:
        """What a piece comes to; by itself its text in capitals."""
        found = {PIECE_FILE: (text or self.part.piece.upper()).encode()}
        self.running.future.set_result(pack(found, {"seconds": {"trying": 2.0}, "warnings": ()}))

    def fail(self, error: Exception) -> None:
        self.running.future.set_exception(error)


class ManualWorkers:
    """Workers that do nothing until the test says so; with ``answer`` they do it at once."""

    kind: Kind = "processes"

    def __init__(self, count: int = 1, answer: Callable[[Task], None] | None = None) -> None:
        self.count, self._answer = count, answer
        self.tasks: list[Task] = []
        self._turn = threading.Condition()

    def submit(self, task: str, payload: bytes, limits: TaskLimits, progress: Progress | None = None) -> Running:
        assert task == "order"
        files, _ = unpack(payload)
        part = plain.from_json(OrderPart, files.pop(PART_FILE, b"{}"))
        given = Task(from_json(files.pop(ORDER_FILE)), part, files, progress, limits)
        with self._turn:
            self.tasks.append(given)
            self._turn.notify_all()
        if self._answer is not None:
            self._answer(given)
        return given.running

    def task(self, number: int) -> Task:
        """The task with that number, once there is one; counts from 0."""
        with self._turn:
            assert self._turn.wait_for(lambda: len(self.tasks) > number, DEADLINE), f"no task {number}"
            return self.tasks[number]


def until(condition: Callable[[], Any]) -> Any:
    """What ``condition`` says as soon as it is true."""
    end = time.monotonic() + DEADLINE
    while not (said := condition()):
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.005)
    return said


def over(scheduler: Scheduler, job: Job) -> Job:
    """``job`` after its end."""
    found: Job = until(lambda: (now := scheduler.job(job.id)) and now.over and now)
    return found


@contextmanager
def a_store(folder: Path) -> Iterator[Store]:
    folder.mkdir(parents=True, exist_ok=True)
    with Store(str(folder / "store"), folder, 0, b"k" * 32) as store:
        store.put_program(PROGRAM)
        yield store


@contextmanager
def a_scheduler(
    folder: Path,
    workers: Workers,
    store: Store | None = None,
    queue: int = 1000,
    pause: float = 0.02,
    limits: TaskLimits | None = None,
) -> Iterator[Scheduler]:
    """A scheduler with its state in ``folder``; at the end it is closed without grace."""
    with a_store(folder) if store is None else nullcontext(store) as used:
        scheduler = Scheduler(used, workers, Journal(folder), limits or TaskLimits(), queue, pause=pause)
        try:
            yield scheduler
        finally:
            scheduler.close(grace=0)


def an_order(number: int = 0, program: bytes = PROGRAM) -> PartitionOrder:
    """Orders that differ by ``number``."""
    return PartitionOrder(program=hashlib.sha256(program).hexdigest(), name=f"program-{number}")


def copy_state(state: Path, to: Path) -> Path:
    """What is on the disk at this moment: the state of a server that was killed now."""
    shutil.copytree(state, to, ignore=shutil.ignore_patterns("journal.sqlite*", "leases"))
    source, target = sqlite3.connect(state / "journal.sqlite"), sqlite3.connect(to / "journal.sqlite")
    source.backup(target)
    source.close()
    target.close()
    return to
