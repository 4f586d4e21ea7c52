"""The dialects of StableHLO's own interpreter: checks of a program's values, and programs for several processes.

They become custom calls of the same name with their attributes as ``backend_config``, so that a program that checks
itself can be evaluated, printed and read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import tuple_shape
from shardc.hlo.stablehlo.converter import Handler, MlirOp
from shardc.hlo.stablehlo.ops.custom_call import format_attributes

__all__ = ["HANDLERS"]


def _check(target: str, **defaults: float) -> Handler:
    """``check.expect_*``: a call with two operands; one written as an attribute becomes a constant."""

    def handler(op: MlirOp) -> Sequence[Instruction]:
        operands = list(op.operands)
        if "value" in op.raw:
            literal = op.get("value")
            operands.append(op.emit("constant", literal.shape, literal=literal))
        limits = {name: op.get(name, default) for name, default in defaults.items()}
        _call(op, target, operands, limits)
        return ()

    return handler


def _call(
    op: MlirOp, target: str, operands: Sequence[Instruction], attributes: Mapping[str, Any], **attrs: Any
) -> Instruction:
    attrs = {"custom_call_target": target, "custom_call_has_side_effect": True, **attrs}
    if attributes:
        attrs["backend_config"] = format_attributes(dict(attributes))
    shape = op.shapes[0] if len(op.shapes) == 1 else tuple_shape(*op.shapes)
    return op.emit("custom-call", shape, *operands, **attrs)


def _print(op: MlirOp) -> Sequence[Instruction]:
    """Printing is for whoever reads the interpreter's output: nothing here depends on it."""
    return ()


def _probe(op: MlirOp) -> Sequence[Instruction]:
    return (_call(op, op.name, op.operands, {"probe_id": op.get("probe_id")}),)


def _expect_serialized(op: MlirOp) -> Sequence[Instruction]:
    number = op.get("iteration", op.get("iter", 0))
    _call(op, op.name, op.operands, {"probe_id": op.get("probe_id"), "iteration": number})
    return ()


def _run_parallel(op: MlirOp) -> Sequence[Instruction]:
    """A grid of programs, replicas by partitions. Operands and results are those of all processes, one after the
    other; computations that fill the queue of infeeds come first."""
    programs, queue = op.get("programs"), op.get("infeed") or ()
    names = [*queue, *(name for row in programs for name in row)]
    grid = {"replicas": len(programs), "partitions": len(programs[0]), "infeed": len(queue)}
    called = tuple(op.scope.converter.convert_function(n, op) for n in names)
    whole = _call(op, op.name, op.operands, grid, called_computations=called)
    return (whole,) if len(op.shapes) == 1 else op.emit_elements(whole)


HANDLERS: Mapping[str, Handler] = {
    **dict.fromkeys(("check.expect_eq", "check.expect_eq_const"), _check("check.expect_eq")),
    **dict.fromkeys(
        ("check.expect_almost_eq", "check.expect_almost_eq_const"),
        _check("check.expect_almost_eq", tolerance=1e-4),
    ),
    "check.expect_close": _check("check.expect_close", max_ulp_difference=1, min_ulp_difference=0),
    "check.expect_serialized_eq": _expect_serialized,
    "interpreter.print": _print,
    "interpreter.probe": _probe,
    "interpreter.run_parallel": _run_parallel,
}
