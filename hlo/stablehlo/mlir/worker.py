"""The process that has MLIR loaded. For each request on stdin it forks; the fork writes ``("ok", answer)`` or
``(kind of failure, message)`` to stdout, and ends; how it ended is then said on the file of the first argument.

A process with threads must not fork: a lock that another thread holds is held forever in the fork. So this one starts
none, and where it finds some nevertheless, or is asked to, it answers by itself, once. A fork lives no longer than its
time, than this process, and than whoever asks.

`shardc.hlo.stablehlo.fork_server` asks it.
"""

from __future__ import annotations

import ctypes
import gc
import marshal
import os
import select
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, NoReturn

#: Seconds without a request after which it goes.
_IDLE = 60.0
#: Elsewhere systems' own libraries do not survive a fork: there a process is good for one request.
_FORKS = sys.platform == "linux"
#: Seconds between two looks at whether whoever asks still lives, where its end of a pipe does not say so.
_LOOK = 1.0
_PR_SET_PDEATHSIG = 1


def _packages() -> None:
    """Make the siblings importable without running the packages above them (which import much more)."""
    folder = Path(__file__).resolve().parent
    for name, up in (("shardc.hlo.stablehlo.mlir", 0), ("shardc.hlo.stablehlo", 1), ("shardc.hlo", 2), ("shardc", 3)):
        module = ModuleType(name)
        module.__path__ = [str(folder.parents[up - 1] if up else folder)]
        sys.modules[name] = module


def _load() -> Callable[[dict[str, Any]], Any]:
    """Import all that requests need; what answers them, or raises."""
    from shardc.hlo.stablehlo.mlir.attach import attach
    from shardc.hlo.stablehlo.mlir.bindings import Bindings, bytecode, refine_shapes
    from shardc.hlo.stablehlo.mlir.extract import plain_form

    mlir = Bindings()

    def answer(request: dict[str, Any]) -> Any:
        data = request["data"]
        match request["do"]:
            case "read":
                return plain_form(mlir, mlir.parse(data))
            case "encode":
                return bytecode(mlir.parse(data))
            case "refine":
                return refine_shapes(mlir, mlir.parse(data), request["types"])
        return attach(mlir, data, request["attach"])

    return answer


def _load_answers() -> Callable[[dict[str, Any]], tuple[str, Any]]:
    """What answers requests; whatever goes wrong is an answer, too."""
    from shardc.hlo.stablehlo.mlir.bindings import MissingJaxlibError

    try:
        answer = _load()
    except MissingJaxlibError as e:
        missing = str(e)
        return lambda request: ("missing", missing)

    def guard(request: dict[str, Any]) -> tuple[str, Any]:
        try:
            return ("ok", answer(request))
        except MissingJaxlibError as e:
            return ("missing", str(e))
        except Exception as e:
            return ("failed", str(e))

    return guard


def _request(stdin: int, asker: int) -> Any:
    """The next one; None when there will be none."""
    if _first([stdin], _IDLE, asker) is None:
        return None
    size = _exactly(stdin, 8)
    data = _exactly(stdin, *struct.unpack("<Q", size)) if size else b""
    return marshal.loads(data) if data else None


def _first(files: list[int], seconds: float, asker: int) -> int | None:
    """The first of ``files`` that can be read (or is at its end); None after ``seconds``, or without ``asker``."""
    until = time.monotonic() + seconds
    while os.getppid() == asker and (left := until - time.monotonic()) > 0:
        ready = select.select(files, [], [], min(left, _LOOK))[0]
        if ready:
            return next(f for f in files if f in ready)
    return None


def _exactly(stdin: int, size: int) -> bytes:
    """So many bytes; none at the end."""
    data = bytearray()
    while len(data) < size:
        piece = os.read(stdin, min(size - len(data), 1 << 20))
        if not piece:
            return b""
        data += piece
    return bytes(data)


def _serve(answer: Callable[[dict[str, Any]], Any], request: dict[str, Any], stdout: BinaryIO) -> NoReturn:
    """Answer, and end this process."""
    import resource

    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.alarm(max(1, int(request["seconds"])))
        for kind, most in request["limits"]:
            resource.setrlimit(kind, (most, resource.getrlimit(kind)[1]))
        marshal.dump(answer(request), stdout)
        stdout.flush()
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


class _Forks:
    """Makes a fork for each request of ``asker`` that comes on ``stdin``."""

    def __init__(self, answer: Callable[[dict[str, Any]], Any], stdin: int, stdout: BinaryIO, asker: int) -> None:
        self._answer, self._stdin, self._stdout, self._asker = answer, stdin, stdout, asker
        self._prctl = ctypes.CDLL(None).prctl

    def outcome(self, request: dict[str, Any]) -> int | None:
        """How the fork ended (minus SIGALRM: its time was over); None when nobody asks any more."""
        end, held = os.pipe()
        here = os.getpid()
        fork = os.fork()
        if not fork:
            self._prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != here:
                os._exit(1)
            _serve(self._answer, request, self._stdout)
        os.close(held)
        # One request at a time: what comes on stdin now is its end.
        first = _first([end, self._stdin], request["seconds"], self._asker)
        os.kill(fork, signal.SIGKILL)  # does nothing to one that has ended
        _, status = os.waitpid(fork, 0)
        os.close(end)
        if first == end:
            return os.waitstatus_to_exitcode(status)
        return -signal.SIGALRM if first is None and os.getppid() == self._asker else None


def _single() -> bool:
    """Whether this process has only one thread."""
    return len([*Path("/proc/self/task").iterdir()]) == 1


def _end_with(stdin: int) -> None:
    """End this process when nobody asks any more; by a thread, so not in a process that forks."""

    def wait() -> None:
        select.select([stdin], [], [])
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asks decides
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    stdin, end, asker = os.dup(0), int(sys.argv[1]), os.getppid()
    stdout = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what libraries print is no answer
    setup = _request(stdin, asker)
    if setup is None:
        return
    sys.path[:] = setup["path"]
    _packages()
    answer = _load_answers()
    gc.disable()  # a fork gives one answer and ends
    gc.freeze()
    forks = _Forks(answer, stdin, stdout, asker) if _FORKS and not setup["alone"] else None
    while (request := _request(stdin, asker)) is not None:
        if forks is None or not _single():
            _end_with(stdin)
            _serve(answer, request, stdout)
        outcome = forks.outcome(request)
        if outcome is None:
            break
        os.write(end, struct.pack("<i", outcome))
    os._exit(0)


if __name__ == "__main__":
    main()
