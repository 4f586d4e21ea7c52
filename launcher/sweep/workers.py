"""Processes that assess candidates: each a Python of its own that reads tasks and writes outcomes through pipes.

They import nothing of the caller's, so a script needs no guard for its main part, and they hear no Ctrl-C: their owner
ends them.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from shardc.hlo.errors import RunError
from shardc.hlo.mesh import Mesh
from shardc.launcher.programs import load, program_of
from shardc.launcher.stages import Program
from shardc.launcher.sweep.assess import Candidate, Outcome, Settings, assess

__all__ = ["Assessor", "Source", "Task", "main", "started"]

_START = "import sys; sys.path[:] = {path!r}; from shardc.launcher.sweep.workers import main; main()"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a program comes from: a file, or MLIR ``text``; with the ``mesh`` that it is read over, if any."""

    path: str = ""
    text: str = ""
    mesh: tuple[tuple[str, int], ...] = ()

    def read(self) -> Program:
        program = load(self.path) if self.path else program_of(self.text.encode(), "the program")
        return program.annotate(mesh=Mesh(dict(self.mesh))) if self.mesh else program


@dataclass(frozen=True)
class Task:
    """A candidate of the program that ``source`` holds."""

    source: Source
    candidate: Candidate
    settings: Settings


#: Outcomes of tasks in their order; the callable hears of each that is done.
Assessor = Callable[[Sequence[Task], Callable[[], None]], list[Outcome]]


class _Worker:
    """A process, and the program that it has."""

    def __init__(self) -> None:
        path = [str(Path(p).absolute()) for p in sys.path]
        command = [sys.executable, "-c", _START.format(path=path)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._source: Source | None = None

    def ask(self, task: Task) -> Outcome:
        """The outcome of ``task``; raises what the process raised, or `RunError` when that is gone."""
        process, known = self.process, task.source == self._source
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump((None if known else task.source, task.candidate, task.settings), process.stdin)
            process.stdin.flush()
            answer = pickle.load(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError) as e:
            code = process.wait()
            where = f"{task.candidate.name}, {dict(task.candidate.mesh)}"
            raise RunError(f"a process of the sweep ended with {code}", where=where, fix="fewer processes: -j 1") from e
        if isinstance(answer, BaseException):
            raise answer
        assert isinstance(answer, Outcome)
        self._source = task.source
        return answer

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):  # what was not sent yet
                    pipe.close()


@contextmanager
def started(jobs: int) -> Iterator[Assessor]:
    """``jobs`` processes for tasks; they end with the block, at once when it is left by an exception."""
    idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
    everybody: list[_Worker] = []

    def one(task: Task) -> Outcome:
        worker = idle.get()
        try:
            return worker.ask(task)
        finally:
            idle.put(worker)

    pool = ThreadPoolExecutor(jobs, thread_name_prefix="sweep")

    def run(tasks: Sequence[Task], done: Callable[[], None]) -> list[Outcome]:
        while len(everybody) < min(jobs, len(tasks)):
            everybody.append(_Worker())
            idle.put(everybody[-1])
        futures = [pool.submit(one, task) for task in tasks]
        _await(futures, done)
        return [f.result() for f in futures]

    try:
        yield run
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in everybody:
            worker.end()


def _await(futures: Sequence[Future[Outcome]], done: Callable[[], None]) -> None:
    """Until all are over, or one has failed; waits shortly, so that signals are heard."""
    left: set[Future[Outcome]] = set(futures)
    while left:
        over, left = wait(left, timeout=0.2, return_when=FIRST_COMPLETED)
        for future in over:
            future.result()
            done()


def main() -> None:
    """Answer tasks from standard input until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever is printed must not get between answers
    serve(sys.stdin.buffer, answers)


def serve(tasks: IO[bytes], answers: IO[bytes]) -> None:
    """One answer per task: an `Outcome`, or what was raised. A task comes with its program when that is another one."""
    program: Program | None = None
    while True:
        try:
            source, candidate, settings = pickle.load(tasks)
        except EOFError:
            return
        answer: Any
        try:
            program = source.read() if source is not None else program
            assert program is not None
            answer = assess(program, candidate, settings)
        except Exception as e:
            answer = e
        pickle.dump(answer, answers)
        answers.flush()
