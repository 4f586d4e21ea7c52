"""jaxlib's MLIR bindings: the one place that imports them, checked for what is used."""

from __future__ import annotations

import importlib
import io
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

__all__ = [
    "Bindings", "MissingJaxlibError", "SharedContext", "bytecode", "op_names", "refine_shapes", "shared_context",
    "simplify_dynamism",
]  # fmt: skip

_PORTABLE = re.compile(rb"ML\xefR.?StableHLO_v", re.DOTALL)
_BYTECODE = b"ML\xefR"


class MissingJaxlibError(Exception):
    """jaxlib, or a part of it that is needed here, cannot be imported."""


class Bindings:
    """jaxlib's MLIR bindings, imported once and checked for what this file uses."""

    def __init__(self) -> None:
        try:
            from jaxlib.mlir import ir, passmanager
            from jaxlib.mlir.dialects import chlo, func, sdy, stablehlo
        except ImportError as e:
            raise MissingJaxlibError(str(e)) from None
        self.ir, self.passmanager = ir, passmanager
        self.stablehlo, self.sdy, self.chlo, self.func = stablehlo, sdy, chlo, func
        for module, names in (
            (ir, ("Module", "Operation", "Attribute", "DenseElementsAttr", "Location")),
            (stablehlo, ("register_dialect", "GatherDimensionNumbers", "deserialize_portable_artifact")),
            (sdy, ("register_dialect", "TensorShardingAttr", "TensorShardingPerValueAttr", "MeshAttr")),
        ):
            lacking = [n for n in names if not hasattr(module, n)]
            if lacking:
                raise MissingJaxlibError(f"this jaxlib has no {module.__name__}.{lacking[0]}")

    def context(self) -> Any:
        """A fresh context that knows the dialects JAX emits."""
        context = self.ir.Context()
        context.enable_multithreading(False)  # threads that a damaged file stops wait for each other
        for name in ("_jax_mlir_ext", "register_jax_dialects"):  # newer and older releases
            try:
                extension = importlib.import_module(f"jaxlib.mlir._mlir_libs.{name}")
            except ImportError:
                continue
            if hasattr(extension, "register_dialects"):
                registry = self.ir.DialectRegistry()
                extension.register_dialects(registry)
                context.append_dialect_registry(registry)
                break
        for dialect in (self.stablehlo, self.chlo, self.sdy):
            dialect.register_dialect(context)
        context.load_all_available_dialects()
        context.allow_unregistered_dialects = True  # the reader names what it does not know
        return context

    def parse(self, data: bytes, context: Any = None) -> Any:
        """A module from text, bytecode or a portable artifact, inside ``context`` (default: a fresh one)."""
        with context or self.context() as current:
            if _PORTABLE.match(data):
                return self.stablehlo.deserialize_portable_artifact(current, data)
            return self.ir.Module.parse(data if data.startswith(_BYTECODE) else data.decode())

    def run_passes(self, module: Any, passes: str) -> None:
        """Run an MLIR pipeline on a module in place; ValueError when this jaxlib has no such pass."""
        if hasattr(self.stablehlo, "register_stablehlo_passes"):
            self.stablehlo.register_stablehlo_passes()
        with module.context:
            self.passmanager.PassManager.parse(passes).run(module.operation)


class SharedContext:
    """A context in which programs are read one after the other: to make one takes longer than to read most programs.

    A context keeps all types, attributes and constants that were ever in it, so after some programs it is made anew.
    """

    #: Bytes that are read before the context is made anew.
    limit = 16 << 20

    def __init__(self) -> None:
        self.bindings = Bindings()
        self._lock = threading.Lock()
        self._context: Any = None
        self._read = 0

    @contextmanager
    def parse(self, data: bytes) -> Iterator[Any]:
        """`Bindings.parse` in this context, which nobody else uses meanwhile."""
        with self._lock:
            if self._context is None or self._read > self.limit:
                self._context, self._read = self.bindings.context(), 0
            self._read += len(data)
            yield self.bindings.parse(data, self._context)


@cache
def shared_context() -> SharedContext:
    """The one of this process."""
    return SharedContext()


_DYNAMIC = re.compile(r"stablehlo\.(dynamic_(broadcast_in_dim|conv|gather|iota|pad|reshape)|real_dynamic_slice)$")


def simplify_dynamism(bindings: Bindings, module: Any) -> None:
    """Ops whose shape operands are constants become their static forms, where MLIR knows how."""
    if any(_DYNAMIC.match(n) for n in op_names(module.operation)):
        bindings.run_passes(module, "builtin.module(func.func(stablehlo-canonicalize-dynamism))")


def bytecode(module: Any) -> bytes:
    """The module as MLIR bytecode, locations included."""
    out = io.BytesIO()
    module.operation.write_bytecode(out)
    return out.getvalue()


def refine_shapes(bindings: Bindings, module: Any, types: tuple[str, ...]) -> str:
    """Text of ``module`` for arguments of the given types, with all shapes that follow from them."""
    simplify = "stablehlo-refine-shapes,func.func(stablehlo-canonicalize-dynamism)"
    bindings.run_passes(
        module, f"builtin.module(stablehlo-refine-arguments{{types={','.join(types)}}},{simplify},{simplify})"
    )
    text = module.operation.get_asm(enable_debug_info=True)
    return str(text)


def op_names(operation: Any) -> set[str]:
    """Names of all ops within ``operation``."""
    names: set[str] = set()
    pending = [operation]
    while pending:
        current = pending.pop()
        names.add(current.name)
        for region in current.regions:
            for block in region:
                pending += [op.operation for op in block.operations]
    return names
