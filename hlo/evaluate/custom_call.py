"""NumPy meaning: the custom calls whose targets are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from shardc.hlo.errors import RunError, UnsupportedError
from shardc.hlo.evaluate.arithmetic import total_order
from shardc.hlo.evaluate.machine import Machine, Row
from shardc.hlo.evaluate.values import Array, Value
from shardc.hlo.ir import Instruction
from shardc.hlo.types import Shape, dtype_of

__all__ = ["CUSTOM_CALL"]


def _identity(m: Machine, i: Instruction, operands: Sequence[Value]) -> Value:
    """Annotations: the value goes through."""
    return operands[0] if len(operands) == 1 else tuple(operands)


def _differ(i: Instruction, actual: Array, expected: Array, wrong: Array) -> None:
    if not wrong.any():
        return
    place = tuple(int(n) for n in np.argwhere(wrong)[0])
    raise RunError(
        f"{i.attrs['custom_call_target']} is false at {list(place)}: {actual[place]} is not {expected[place]}",
        where=f"%{i.name}, {i.source}" if i.source else f"%{i.name}",
    )


def _empty(shape: Shape) -> Value:
    """What a check returns: nothing, or an empty tuple."""
    return () if shape.is_tuple else None


def _expect_equal(m: Machine, i: Instruction, operands: Sequence[Value]) -> Value:
    actual, expected = operands
    _differ(i, actual, expected, np.not_equal(actual, expected) & ~_both_nan(actual, expected))
    return _empty(i.shape)


def _expect_almost_equal(m: Machine, i: Instruction, operands: Sequence[Value]) -> Value:
    actual, expected = (x.astype(np.complex128) for x in operands)
    same = (operands[0] == operands[1]) | (np.isnan(actual) & np.isnan(expected))
    _differ(i, operands[0], operands[1], ~same & ~(np.abs(actual - expected) <= 1e-3))
    return _empty(i.shape)


def _expect_close(m: Machine, i: Instruction, operands: Sequence[Value]) -> Value:
    """Within 3 units in the last place, NaN equal to NaN; complex numbers by their parts."""
    actual, expected = operands
    if actual.dtype.kind == "c":
        far = _far(actual.real, expected.real) | _far(actual.imag, expected.imag)
    else:
        far = _far(actual, expected)
    _differ(i, actual, expected, far)
    return _empty(i.shape)


def _both_nan(a: Array, b: Array) -> Array:
    return np.logical_and(np.not_equal(a, a), np.not_equal(b, b))


def _far(a: Array, b: Array) -> Array:
    if not dtype_of(a.dtype).is_float:
        return np.not_equal(a, b)
    steps = np.abs(total_order(a + a.dtype.type(0)).astype(object) - total_order(b + b.dtype.type(0)).astype(object))
    return np.asarray(np.greater(steps, 3).astype(np.bool_) & ~_both_nan(a, b) & np.not_equal(a, b))


Meaning = Callable[[Machine, Instruction, Sequence[Value]], Value]
_TARGETS: Mapping[str, Meaning] = {
    **dict.fromkeys(
        (
            "Sharding",
            "SPMDFullToShardShape",
            "SPMDShardToFullShape",
            "annotate_device_placement",
            "xla.sdy.FuncResultSharding",
            "xla.sdy.GlobalToLocalShape",
            "xla.sdy.LocalToGlobalShape",
            "LayoutConstraint",
        ),
        _identity,
    ),
    "check.expect_eq": _expect_equal,
    "check.expect_almost_eq": _expect_almost_equal,
    "check.expect_close": _expect_close,
}


def _custom_call(m: Machine, i: Instruction, operands: Sequence[Value]) -> Value:
    target = i.attrs["custom_call_target"]
    meaning = _TARGETS.get(target)
    if meaning is None:
        raise UnsupportedError(
            f"the evaluator does not know the custom call {target!r}",
            where=f"%{i.name}, {i.source}" if i.source else f"%{i.name}",
            fix=f"known targets: {', '.join(sorted(_TARGETS))}",
        )
    if (
        meaning is _identity
        and len(operands) == 1
        and [s.dims for s in i.operands[0].shape.leaves()] != [s.dims for s in i.shape.leaves()]
    ):
        raise UnsupportedError(
            f"{target} changes {i.operands[0].shape} to {i.shape}: a manual computation runs on its devices only",
            where=f"%{i.name}",
            fix="partition the program first",
        )
    return meaning(m, i, operands)


CUSTOM_CALL = Row(_custom_call)
