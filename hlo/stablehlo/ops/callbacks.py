"""Calls of Python: JAX's custom calls become callbacks (`shardc.hlo.ir.callbacks`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardc.hlo.ir.callbacks import EACH, ORDERED, PURE, TITLE
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.types import tuple_shape
from shardc.hlo.stablehlo.converter import MlirOp

__all__ = ["convert_callback"]

#: Names in JAX's traces of functions that call back with effects, and how users write them.
_NAMES = {
    "debug_print": "jax.debug.print",
    "debug_callback": "jax.debug.callback",
    "io_callback": "jax.experimental.io_callback",
}


def convert_callback(op: MlirOp, config: str) -> Sequence[Instruction]:
    """A custom call with the backend ``config``, in its place among the others: tokens would only repeat that order.
    One without side effects whose results nobody reads is left out, as JAX may.
    """
    tokens = [o for o in op.operands if o.shape.is_token]
    shapes = tuple(s for s in op.shapes if not s.is_token)
    pure = not op.get("has_side_effect")
    if pure and not any(op.scope.converter.is_used(n) for n in range(op.first, op.first + len(op.shapes))):
        return [op.emit("constant", s, literal=Literal.full(s, 0)) for s in op.shapes]
    whole = shapes[0] if len(shapes) == 1 else tuple_shape(*shapes)
    operands = [o for o in op.operands if o not in tokens]
    made = op.emit("custom-call", whole, *operands, **_attributes(op, config, _title(op, pure), bool(tokens)))
    parts = [made]
    if len(shapes) != 1:
        parts = [op.emit("get-tuple-element", s, made, index=k) for k, s in enumerate(shapes)]
    elements, token = iter(parts), tokens[0] if tokens else None
    return [(token or op.emit("after-all", s)) if s.is_token else next(elements) for s in op.shapes]


def _title(op: MlirOp, pure: bool) -> str:
    """What people call it."""
    if pure:
        return PURE
    primitive = op.metadata.op_name.rpartition("/")[2] if op.metadata else ""
    return next((user for traced, user in _NAMES.items() if traced in primitive), "a callback")


def _attributes(op: MlirOp, config: str, title: str, ordered: bool) -> dict[str, Any]:
    marks = {TITLE: title}
    if _on_each_device(op):
        marks[EACH] = "true"
    if ordered:
        marks[ORDERED] = "true"
    return {
        "custom_call_target": op.get("call_target_name"),
        "custom_call_has_side_effect": True,
        "backend_config": config,
        "api_version": "API_VERSION_TYPED_FFI",
        "frontend_attributes": tuple(sorted(marks.items())),
    }


def _on_each_device(op: MlirOp) -> bool:
    """JAX says where a callback runs: on one device, or in a manual computation on all."""
    if "sdy.sharding" in op.raw:
        given = op.get("sdy.sharding")
        first = given[0] if isinstance(given, tuple) else given
        return not getattr(getattr(first, "mesh", None), "is_maximal", True)
    return "manual" in str(op.get("mhlo.sharding", ""))
