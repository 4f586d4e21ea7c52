"""The child process: one request on stdin, ``("ok", answer)`` or ``(kind of failure, message)`` on stdout."""

from __future__ import annotations

import gc
import marshal
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


def _packages() -> None:
    """Make the siblings importable without running the packages above them (which import much more)."""
    folder = Path(__file__).resolve().parent
    for name, up in (("shardc.hlo.stablehlo.mlir", 0), ("shardc.hlo.stablehlo", 1), ("shardc.hlo", 2), ("shardc", 3)):
        module = ModuleType(name)
        module.__path__ = [str(folder.parents[up - 1] if up else folder)]
        sys.modules[name] = module


def _answer(request: dict[str, Any]) -> tuple[str, Any]:
    from shardc.hlo.stablehlo.mlir.attach import attach
    from shardc.hlo.stablehlo.mlir.bindings import Bindings, MissingJaxlibError, bytecode, refine_shapes
    from shardc.hlo.stablehlo.mlir.extract import plain_form

    try:
        bindings = Bindings()
        if request["do"] == "read":
            return ("ok", plain_form(bindings, bindings.parse(request["data"])))
        if request["do"] == "encode":
            return ("ok", bytecode(bindings.parse(request["data"])))
        if request["do"] == "refine":
            return ("ok", refine_shapes(bindings, bindings.parse(request["data"]), request["types"]))
        return ("ok", attach(bindings, request["data"], request["attach"]))
    except MissingJaxlibError as e:
        return ("missing", str(e))
    except Exception as e:
        return ("failed", str(e))


def main() -> None:
    gc.disable()  # one answer, then the process ends
    request = marshal.load(sys.stdin.buffer)
    sys.path[:] = request["path"]
    stdout, sys.stdout = sys.stdout.buffer, sys.stderr
    _packages()
    marshal.dump(_answer(request), stdout)
    stdout.flush()


if __name__ == "__main__":
    main()
