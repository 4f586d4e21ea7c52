"""The errors of tasks that were stopped, broke a limit, or lost their process."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from shardc.hlo.errors import EnvironmentProblem, RunError
from shardc.hlo.units import bytes_text
from shardc.launcher.executors.limits import TaskLimits

__all__ = [
    "crash_error",
    "disk_full_error",
    "last_lines",
    "memory_error",
    "size_error",
    "stopped_error",
    "timeout_error",
]

#: What allocators say before they end a process: LLVM's, C++'s, and Python's own.
_NO_MEMORY = re.compile(r"out of memory|bad_alloc|MemoryError|[Cc]annot allocate memory")
_LAST_LINES, _LINE_LENGTH = 3, 200


def stopped_error(name: str) -> RunError:
    """Somebody did not want the result any more, or the work is closed."""
    return RunError(f"{name!r} was stopped")


def timeout_error(name: str, limits: TaskLimits) -> RunError:
    """The time is over."""
    what = f"{name!r} exceeded its limit of {limits.seconds:g} s and was stopped"
    return RunError(what, fix="give a smaller program, or raise the limit (--time-limit of shardc serve)")


def disk_full_error(name: str, error: OSError) -> EnvironmentProblem:
    """The disk is full."""
    return EnvironmentProblem(
        f"{name!r} has no disk space: {error.strerror}",
        fix="free space for temporary files, or set TMPDIR to another folder",
    )


def size_error(name: str, limits: TaskLimits) -> RunError:
    """The answer has more bytes than it may have."""
    return RunError(
        f"the result of {name!r} has more than {bytes_text(limits.answer_bytes)}", fix="request fewer results"
    )


def memory_error(name: str, limits: TaskLimits) -> RunError:
    """The task needs more memory than it may have, or than the machine has."""
    allowed = f"than the {bytes_text(limits.memory_bytes)} that it may have" if limits.memory_bytes else "than there is"
    fix = "give a smaller program, or raise the limit (--memory-limit of shardc serve)"
    return RunError(f"{name!r} needs more memory {allowed}", fix=fix)


def crash_error(name: str, code: int, said: str, limits: TaskLimits) -> RunError:
    """The process that did the task ended by itself with exit status ``code`` (negative: a signal); ``said`` is what
    it wrote on standard error."""
    if _NO_MEMORY.search(said):
        return memory_error(name, limits)
    words = last_lines(said.splitlines())
    if code == -signal.SIGXCPU:
        return timeout_error(name, limits)
    if -code in (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP):
        fix = "the system may have killed it for lack of memory: try again, or give a smaller program"
        return RunError(f"the process of {name!r} was killed", where=words, fix=fix)
    how = f"exit status {code}" if code >= 0 else _signal_name(-code)
    fix = "this is a bug in shardc or in LLVM: please report it with the program"
    return RunError(f"the process of {name!r} crashed ({how})", where=words, fix=fix)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def last_lines(lines: Sequence[str]) -> str | None:
    """The last words of a process as one line, None when it said nothing; no control characters."""
    last = [" ".join(line.split())[:_LINE_LENGTH] for line in lines if line.strip()][-_LAST_LINES:]
    text = "".join(c if c.isprintable() else "?" for c in " | ".join(last))
    return f"its last output: {text}" if text else None
