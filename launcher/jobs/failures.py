"""How a rank fails: its error is printed with its number, then the whole job ends at once.

A plain exception would leave the other ranks waiting forever in their next collective. Most errors strike all
ranks alike (a bad file, a wrong shape), so ranks other than 0 hold theirs back for a moment: rank 0 prints it
once and ends the job before they do.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import socket
import sys
import threading
import time
import traceback
from types import TracebackType
from typing import Any, NoReturn

from shardc.hlo.errors import ShardcError
from shardc.launcher.jobs.rank_process import running_mpi

__all__ = [
    "SharedFailureError",
    "abort",
    "describe",
    "end_forked",
    "end_job",
    "exit_code_of",
    "install_abort_hook",
    "prefixed",
]

_HOLD_BACK = 0.5
#: Seconds that a rank without MPI keeps others from printing what it printed: loaded machines start ranks apart.
_PRINTED = 1.5
_ABORT_LIMIT = 2.0
#: Seconds that a launcher may take to pass on what a rank printed.
_PASSED_ON = 0.2


class SharedFailureError(Exception):
    """An error that every rank of the job knows: rank 0 prints it, and all end in good order."""

    def __init__(self, error: ShardcError) -> None:
        super().__init__(error)
        self.error = error


def exit_code_of(error: BaseException) -> int:
    """0 done, 1 failed, 2 bad input or environment, 130 interrupted."""
    if isinstance(error, KeyboardInterrupt):
        return 130
    if isinstance(error, SystemExit):
        if error.code is None:
            return 0
        return error.code if isinstance(error.code, int) else 1
    return error.exit_code if isinstance(error, ShardcError) else 1


def describe(error: BaseException) -> str:
    """Our errors as their text and the line of the user's code that they come from, others with their traceback."""
    if isinstance(error, ShardcError):
        place = _users_line(error.__traceback__)
        return f"error: {error}" + (f"\n  called at: {place}" if place and place not in str(error.where) else "")
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, str) else f"exited with status {error.code}"
    return "".join(traceback.format_exception(type(error), error, _user_frames(error.__traceback__))).rstrip()


def _users_line(trace: TracebackType | None) -> str:
    """``file:line`` of the innermost call in the user's own code; empty where there is none."""
    if trace is None:
        return ""
    from shardc.hlo.numpy.recorder import is_users

    # The methods that Python writes for a dataclass are in no file, and belong to the class's module.
    known = [(f, line) for f, line in traceback.walk_tb(trace) if not _is_ours(f.f_globals.get("__name__"))]
    frames = [(f.f_code.co_filename, line) for f, line in known]
    own = [f"{file}:{line}" for file, line in frames if is_users(file) and not re.search("-packages|^<frozen", file)]
    return own[-1] if own else ""


def _is_ours(module: str | None) -> bool:
    return module is not None and module.partition(".")[0] == "shardc"


def _user_frames(trace: TracebackType | None) -> TracebackType | None:
    """The part of a traceback below the runner that started the user's script."""
    runner = ("rank_main.py", "run.py", "<frozen runpy>")
    inner = trace
    while inner is not None and inner.tb_frame.f_code.co_filename.endswith(runner):
        inner = inner.tb_next
    return inner or trace


def prefixed(rank: int, text: str) -> str:
    """Each line of ``text`` with ``[rank]`` before it."""
    return "\n".join(f"[{rank}] {line}" for line in text.splitlines())


def tell_before_mpi(rank: int, text: str) -> None:
    """Print an error of a rank that has not started MPI, unless another rank on this node printed the same one.

    The ranks of a node share their parent, the launcher's daemon. The first of them to take a name in Linux's
    abstract socket space speaks; the name is gone with its process. Elsewhere every rank speaks.
    """
    digest = hashlib.sha256(text.encode()).hexdigest()[:32]
    with socket.socket(socket.AF_UNIX) as claim:
        try:
            claim.bind(f"\0shardc-{os.getppid()}-{digest}" if sys.platform == "linux" else "")
        except OSError:
            if sys.platform == "linux":
                return
        print(prefixed(max(rank, 0), text), file=sys.stderr, flush=True)
        if sys.platform == "linux":
            time.sleep(_PRINTED)


def end_job(error: BaseException, mpi: Any) -> NoReturn:
    """Print ``error`` as this rank's and end the job, through MPI where it runs; does not return."""
    rank = mpi.COMM_WORLD.Get_rank() if mpi is not None else 0
    if rank:
        time.sleep(_HOLD_BACK)
    hook = sys.excepthook  # a watchdog's keeps the other ranks quiet
    getattr(hook, "claim", _nothing)()
    print(prefixed(rank, describe(error)), file=sys.stderr, flush=True)
    getattr(hook, "printed", _nothing)()
    sys.stdout.flush()
    abort(exit_code_of(error) or 1, mpi)


def _nothing() -> None:
    """What a hook of somebody else's does for us."""


def abort(code: int, mpi: Any | None) -> NoReturn:
    """End all ranks through MPI; does not return. Launchers drop what a rank printed right before.

    Without MPI this process ends, and the watchdogs of the others end theirs.
    """
    sys.stderr.flush()
    if mpi is None:
        os._exit(code)
    time.sleep(_PASSED_ON)
    # A damaged MPI may hang in Abort: this process ends all the same, and its launcher ends the others.
    threading.Timer(_ABORT_LIMIT, os._exit, [code]).start()
    mpi.COMM_WORLD.Abort(code)
    os._exit(code)  # some libraries come back from Abort before the launcher has ended this process


def end_forked(error: BaseException) -> NoReturn:
    """End a process that the program forked, for which ``error`` came through: without ending the rank's MPI, as
    Python would do at its regular end."""
    if not isinstance(error, SystemExit) or isinstance(error.code, str):
        print(describe(error), file=sys.stderr, flush=True)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(exit_code_of(error))


def install_abort_hook(rank: int) -> None:
    """Make an uncaught exception end the whole job, for programs started by plain ``python``.

    ``rank`` is the launcher's number for this process, for errors that come up before MPI runs.
    """
    before, process = sys.excepthook, os.getpid()

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if os.getpid() != process:
            end_forked(error)
        if (mpi := running_mpi()) is not None:
            if mpi.COMM_WORLD.Get_size() > 1:
                end_job(error, mpi)
        elif isinstance(error, ShardcError):
            tell_before_mpi(rank, describe(error))
            sys.stdout.flush()
            os._exit(exit_code_of(error))
        before(kind, error, trace)

    sys.excepthook = hook
