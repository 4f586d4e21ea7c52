"""A child process that does tasks under limits, as its parent sees it.

The parent trusts it with nothing: compilers of native code can crash, hang or fill memory. The child has limits from
the operating system and the parent a clock; whatever ends a child becomes an error that says which task and why. Only
names, plain data and bytes go between the two.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from shardc.hlo.errors import EnvironmentProblem, RunError
from shardc.launcher.executors.environment import child_environment
from shardc.launcher.executors.failures import crash_error, last_lines, stopped_error, timeout_error
from shardc.launcher.executors.frames import FrameError, FrameReader, MessageFrame, to_bytes
from shardc.launcher.executors.limits import TaskLimits
from shardc.launcher.executors.pipes import Pipes
from shardc.launcher.executors.problems import from_problem
from shardc.launcher.executors.tasks import TASKS, Progress

__all__ = ["Child", "DiedBeforeError", "Stop"]

#: Whether the result of a task is no longer wanted; called some ten times a second.
Stop = Callable[[], bool]

_START = """
import sys
sys.path[:] = {path!r}
from shardc.launcher.executors.child_main import main
main({folder!r}, {tasks!r}, {prepare!r})
"""
#: Seconds between two looks at ``stop``; that a process may take to begin, on a machine that is busy; and those that
#: one which has done tasks before may take to begin with another.
_LOOK, _STARTING, _WAKING = 0.1, 120.0, 30.0
#: Seconds that a process gets to end by itself.
_END_SECONDS = 2.0
#: Tasks that a child does, and bytes that it may grow by after its first one, before another takes its place.
_MOST_TASKS, _GROWTH = 200, 512 << 20


class DiedBeforeError(Exception):
    """The child was gone, or does not move, before it began with the task, which another one can do."""


class Child:
    """A Python of its own in an empty folder of its own, with ``given`` in its environment.

    It imports nothing of the caller's, so a script needs no guard for its main part; it hears no Ctrl-C, and ends when
    its parent does. It knows ``tasks``, and imports the modules of those that ``prepare`` names before it is asked. One
    thread at a time uses it.
    """

    def __init__(self, given: Mapping[str, str], tasks: Mapping[str, str] = TASKS, prepare: Sequence[str] = ()) -> None:
        self._folder = _folder()
        path = [str(Path(p).absolute()) for p in sys.path]
        code = _START.format(path=path, folder=self._folder, tasks=dict(tasks), prepare=tuple(prepare))
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", code],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self._folder,
                env={**child_environment(given), "TMPDIR": self._folder},
                start_new_session=True,
                bufsize=0,
            )
        except OSError as e:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise EnvironmentProblem(f"no process can be started: {e.strerror}", where=sys.executable) from None
        self._pipes = Pipes(self._process)
        self._tasks, self._first_resident, self._resident = 0, 0, 0
        self._worn = self._ended = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def worn(self) -> bool:
        """Whether another child should do the next task."""
        grown = self._resident - self._first_resident > _GROWTH
        return self._worn or grown or self._tasks >= _MOST_TASKS or self._process.poll() is not None

    def ask(
        self, task: str, payload: bytes, limits: TaskLimits, progress: Progress | None = None, stop: Stop | None = None
    ) -> bytes:
        """The answer to ``payload`` of the task called ``task``; ``progress`` hears how far it is.

        Raises what the task raised of our family, `RunError` when it was stopped, has broken a limit or its process,
        and `DiedBeforeError`. After any but the first the child is good for nothing: `end` it.
        """
        self._worn = True  # unless all ends well
        self._pipes.send(to_bytes({"task": task, "limits": asdict(limits)}, payload))
        reader, began = FrameReader(limits.answer_bytes), False
        until = time.monotonic() + (_WAKING if self._tasks else _STARTING)
        while not (stop is not None and stop()):
            piece = self._pipes.turn(_LOOK)
            if piece == b"":
                raise self._lost_child(task, limits, began)
            for frame in _frames(reader, piece or b"", task):
                said = frame.header.get("said")
                if said == "began":
                    began, until = True, time.monotonic() + limits.seconds
                elif said == "progress" and progress is not None:
                    progress(frame.header["news"])
                elif said in ("answer", "problem"):
                    return self._finish(frame)
            if time.monotonic() > until:
                raise timeout_error(task, limits) if began else self._lost_child(task, limits, began)
        raise stopped_error(task)

    def end(self) -> None:
        """Kill it, and whatever it started; its folder goes too."""
        if self._ended:
            return
        self._ended = True
        with suppress(ProcessLookupError, PermissionError):  # nobody of the group is left
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._pipes.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _finish(self, frame: MessageFrame) -> bytes:
        """The task is over and the child ready for another."""
        resident = int(frame.header["resident"])
        self._tasks, self._resident = self._tasks + 1, resident
        self._first_resident = self._first_resident or resident
        self._worn = bool(frame.header.get("worn"))
        if frame.header["said"] == "problem":
            raise from_problem(frame.header["problem"])
        return frame.body

    def _lost_child(self, task: str, limits: TaskLimits, began: bool) -> Exception:
        """Why there will be no answer."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        self.end()
        if began:
            return crash_error(task, self._process.returncode, self._pipes.said, limits)
        if self._tasks:
            return DiedBeforeError()
        return EnvironmentProblem("a worker process cannot start", where=last_lines(self._pipes.said.splitlines()))


def _folder() -> str:
    try:
        return tempfile.mkdtemp(prefix="shardc-child-")
    except OSError as e:
        what = f"cannot create a folder for a process: {e.strerror}"
        raise EnvironmentProblem(
            what, where=tempfile.gettempdir(), fix="free space for temporary files, or set TMPDIR to another folder"
        ) from None


def _frames(reader: FrameReader, piece: bytes, task: str) -> list[MessageFrame]:
    try:
        return reader.feed(piece)
    except FrameError as e:
        raise RunError(f"the process of {task!r} sent an unreadable answer: {e}") from None
