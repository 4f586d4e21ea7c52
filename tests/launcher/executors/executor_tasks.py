"""Tasks that behave badly, for tests of those who run them."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from shardc.hlo.errors import InputError, Location, ParseError
from shardc.launcher.executors.tasks import Progress

__all__ = ["BAD_TASKS"]


def echo(payload: bytes, progress: Progress) -> bytes:
    return payload


def refuse(payload: bytes, progress: Progress) -> bytes:
    raise ParseError("an odd word", where=Location("step.hlo", 3, 7), fix=payload.decode("utf-8", "replace")[:80])


def fail(payload: bytes, progress: Progress) -> bytes:
    raise ValueError("what\nnobody\nknows")


def abort(payload: bytes, progress: Progress) -> bytes:
    os.write(2, b"LLVM ERROR: Cannot select: intrinsic %llvm.\x1bodd\n")
    ctypes.CDLL(None).abort()
    return b""


def leave(payload: bytes, progress: Progress) -> bytes:
    os._exit(7)


def crash_without_memory(payload: bytes, progress: Progress) -> bytes:
    os.write(2, b"LLVM ERROR: out of memory\n")
    ctypes.CDLL(None).abort()
    return b""


def for_ever(payload: bytes, progress: Progress) -> bytes:
    progress({"stage": "turning"})
    while True:
        pass


def sleep(payload: bytes, progress: Progress) -> bytes:
    progress({"stage": "asleep", "pid": os.getpid()})
    time.sleep(float(payload or b"600"))
    return b"awake"


def with_helper(payload: bytes, progress: Progress) -> bytes:
    """Starts a process of its own, as a linker is one."""
    helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    progress({"stage": "helped", "pid": helper.pid})
    time.sleep(600)
    return b""


def with_helper_and_crash(payload: bytes, progress: Progress) -> bytes:
    helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    progress({"stage": "helped", "pid": helper.pid})
    ctypes.CDLL(None).abort()
    return b""


def fill_memory(payload: bytes, progress: Progress) -> bytes:
    kept = []
    while True:
        kept.append(bytearray(16 << 20))


def nest(payload: bytes, progress: Progress) -> bytes:
    def deeper(n: int) -> int:
        return deeper(n + 1) + 1

    return b"%d" % deeper(0)


def grow(payload: bytes, progress: Progress) -> bytes:
    """Keeps memory after its end, as caches do."""
    sys.modules[__name__].__dict__.setdefault("_kept", []).append(b"x" * int(payload))
    return b"%d" % os.getpid()


def large(payload: bytes, progress: Progress) -> bytes:
    return bytes(int(payload))


def steps(payload: bytes, progress: Progress) -> bytes:
    for done in range(int(payload)):
        progress({"stage": "counting", "done": done, "of": int(payload)})
    return b"counted"


def look_around(payload: bytes, progress: Progress) -> bytes:
    """The process as it finds itself."""
    print("noise on standard output")
    found = {
        "pid": os.getpid(),
        "folder": str(Path.cwd()),
        "files": [p.name for p in Path.cwd().iterdir()],
        "environment": dict(os.environ),
        "session": os.getsid(0) == os.getpid(),
    }
    return json.dumps(found).encode()


def write_much(payload: bytes, progress: Progress) -> bytes:
    try:
        with Path("file").open("wb") as file:
            for _ in range(64):
                file.write(bytes(1 << 20))
    except OSError as e:
        raise InputError(f"not written: {e.strerror}") from None
    return b"written"


def overflow(payload: bytes, progress: Progress) -> bytes:
    """A file beyond its limit, which the task does not expect."""
    Path("file").write_bytes(bytes(2 << 20))
    return b""


def fill_disk(payload: bytes, progress: Progress) -> bytes:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def quote(payload: bytes, progress: Progress) -> bytes:
    """An error that quotes all of its input."""
    raise ParseError(f"odd: {payload.decode()}", where="\N{SNOWMAN}" * len(payload))


def nonsense(payload: bytes, progress: Progress) -> bytes:
    """Writes over the channel itself."""
    for number in range(3, 32):
        try:
            os.write(number, b"\xff" * 64)
        except OSError:
            continue
    time.sleep(600)
    return b""


BAD_TASKS = {
    f.__name__: f"tests.launcher.executors.executor_tasks:{f.__name__}"
    for f in (
        echo, refuse, fail, abort, leave, crash_without_memory, for_ever, sleep, with_helper,
        with_helper_and_crash, fill_memory, nest, grow,
        large, steps, look_around, write_much, overflow, fill_disk, quote, nonsense,
    )
}  # fmt: skip
