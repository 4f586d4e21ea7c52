"""The process that has MLIR loaded. For each request on stdin it forks; the fork writes ``("ok", answer)`` or
``(kind of failure, message)`` to stdout, and ends; how it ended is then said on the file of the first argument.

`shardc.hlo.stablehlo.standby` asks it.
"""

from __future__ import annotations

import gc
import marshal
import os
import select
import signal
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, NoReturn

#: Seconds without a request after which it goes.
_IDLE = 60.0
#: Elsewhere systems' own libraries do not survive a fork: there a process is good for one request.
_FORKS = sys.platform == "linux"


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


def _loaded() -> Callable[[dict[str, Any]], tuple[str, Any]]:
    """What answers requests; whatever goes wrong is an answer, too."""
    from shardc.hlo.stablehlo.mlir.bindings import MissingJaxlibError

    try:
        answer = _load()
    except MissingJaxlibError as e:
        missing = str(e)
        return lambda request: ("missing", missing)

    def told(request: dict[str, Any]) -> tuple[str, Any]:
        try:
            return ("ok", answer(request))
        except MissingJaxlibError as e:
            return ("missing", str(e))
        except Exception as e:
            return ("failed", str(e))

    return told


def _request(stdin: int) -> Any:
    """The next one; None when there will be none."""
    if not select.select([stdin], [], [], _IDLE)[0]:
        return None
    size = _exactly(stdin, 8)
    data = _exactly(stdin, *struct.unpack("<Q", size)) if size else b""
    return marshal.loads(data) if data else None


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


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asks decides
    stdin, end = os.dup(0), int(sys.argv[1])
    stdout = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what libraries print is no answer
    setup = _request(stdin)
    if setup is None:
        return
    sys.path[:] = setup["path"]
    _packages()
    answer = _loaded()
    gc.disable()  # a fork gives one answer and ends
    gc.freeze()
    while (request := _request(stdin)) is not None:
        fork = os.fork() if _FORKS else 0
        if not fork:
            _serve(answer, request, stdout)
        _, status = os.waitpid(fork, 0)
        os.write(end, struct.pack("<i", os.waitstatus_to_exitcode(status)))
    os._exit(0)


if __name__ == "__main__":
    main()
