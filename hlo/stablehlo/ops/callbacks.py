"""Calls back into Python, which a compiled program cannot make: those that only look on are left out."""

from __future__ import annotations

import re
from collections.abc import Sequence

from shardc.hlo.ir import Instruction
from shardc.hlo.literal import Literal
from shardc.hlo.stablehlo.scope import Op

__all__ = ["convert_callback", "is_callback"]

_TARGET = re.compile(r"xla_(ffi_)?(partitioned_)?python_(cpu|gpu|tpu)_callback|InspectSharding")
#: Names in JAX's traces of functions that call back, and how users write them.
_NAMES = {
    "debug_print": "jax.debug.print",
    "debug_callback": "jax.debug.callback",
    "pure_callback": "jax.pure_callback",
    "io_callback": "jax.experimental.io_callback",
    "inspect_sharding": "jax.debug.inspect_array_sharding",
}


def is_callback(target: str) -> bool:
    return _TARGET.fullmatch(target) is not None


def convert_callback(op: Op) -> Sequence[Instruction]:
    """Nothing, when nobody uses the call's results; a token stays the token that was passed in.

    Raises UnsupportedError where results are used.
    """
    converter = op.scope.converter
    trace = op.metadata.op_name if op.metadata else ""
    name = next((user for traced, user in _NAMES.items() if traced in trace), "a callback")
    used = [s for number, s in enumerate(op.shapes, op.first) if not s.is_token and converter.is_used(number)]
    if used:
        raise op.unsupported(
            f"{name} needs Python in the middle of the program",
            "write it with jax.numpy, or call Python between two jitted functions",
        )
    converter.removed_callbacks.append((name, op.place))
    tokens = [o for o in op.operands if o.shape.is_token]
    return [_stand_in(op, k, tokens) for k in range(len(op.shapes))]


def _stand_in(op: Op, index: int, tokens: Sequence[Instruction]) -> Instruction:
    shape = op.shapes[index]
    if shape.is_token:
        return tokens[0] if tokens else op.emit("after-all", shape)
    return op.emit("constant", shape, literal=Literal.full(shape, 0))
