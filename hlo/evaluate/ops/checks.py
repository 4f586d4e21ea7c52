"""NumPy meaning: the checks of programs that check themselves, and their probes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from shardc.hlo.errors import RunError
from shardc.hlo.evaluate.arithmetic import total_order
from shardc.hlo.evaluate.interpreter import Interpreter, Local
from shardc.hlo.evaluate.values import Array, Value
from shardc.hlo.ir.checks import limits_of
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.lapack import attributes_of
from shardc.hlo.ir.types import Shape, dtype_of
from shardc.hlo.units import count_text

__all__ = ["MEANINGS"]


def _differ(i: Instruction, actual: Array, expected: Array, wrong: Array) -> None:
    if not np.any(wrong):
        return
    place = tuple(int(n) for n in np.argwhere(wrong)[0])
    raise RunError(
        f"{i.attrs['custom_call_target']} is false at {list(place)}: {actual[place]} is not {expected[place]}",
        where=i.place,
    )


def _empty(shape: Shape) -> Value:
    """What a check returns: nothing, or an empty tuple."""
    return () if shape.is_tuple else None


def _expect_equal(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
    actual, expected = operands
    _differ(i, actual, expected, np.not_equal(actual, expected) & ~_both_nan(actual, expected))
    return _empty(i.shape)


def _expect_almost_equal(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
    """Equal, both NaN, or no further apart than the tolerance; complex numbers by their parts."""
    tolerance = limits_of(i).tolerance

    def too_far(actual: Array, expected: Array) -> Array:
        distance = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
        near = np.equal(actual, expected) | _both_nan(actual, expected) | (distance <= tolerance)
        return np.asarray(~np.asarray(near, np.bool_))

    actual, expected = operands
    _differ(i, actual, expected, _by_parts(too_far, actual, expected))
    return _empty(i.shape)


def _expect_close(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
    """So many units in the last place apart, NaN equal to NaN; complex numbers by their parts."""
    limits = limits_of(i)

    def far(actual: Array, expected: Array) -> Array:
        if not dtype_of(actual.dtype).is_float:
            return np.not_equal(actual, expected)
        same = np.equal(actual, expected) | _both_nan(actual, expected)
        numbers = np.isfinite(actual) & np.isfinite(expected)
        steps = np.abs(_ordinal(actual) - _ordinal(expected))
        near = numbers & np.asarray((steps <= limits.max_ulps) & (steps >= limits.min_ulps), np.bool_)
        return np.asarray(~(near | (same & (limits.min_ulps == 0))))

    actual, expected = operands
    _differ(i, actual, expected, _by_parts(far, actual, expected))
    return _empty(i.shape)


def _by_parts(wrong: Any, actual: Array, expected: Array) -> Array:
    if actual.dtype.kind != "c":
        return np.asarray(wrong(actual, expected))
    return np.asarray(wrong(actual.real, expected.real) | wrong(actual.imag, expected.imag))


def _expect_true(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
    """A check that a lowering pass has computed: its predicate."""
    _differ(i, operands[0], np.ones((), np.bool_), np.logical_not(operands[0]))
    return _empty(i.shape)


def _both_nan(a: Array, b: Array) -> Array:
    return np.logical_and(np.not_equal(a, a), np.not_equal(b, b))


def _ordinal(x: Array) -> Array:
    """Counts the values of the type upwards; both zeros are one value."""
    order = total_order(x).astype(object)
    return np.asarray(order + (order < 0))


def _check(meaning: Local) -> Local:
    def run(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
        return (_expect_true if len(operands) == 1 else meaning)(m, i, operands)

    return run


def _probe(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
    m.memo.setdefault(("probe", attributes_of(i)["probe_id"]), []).append(operands[0])
    return operands[0]


def _expect_probed(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
    """The value that a probe saw at its n-th time."""
    attributes = attributes_of(i)
    name, number = attributes["probe_id"], attributes["iteration"]
    seen = m.memo.get(("probe", name), [])
    if number >= len(seen):
        raise RunError(f"probe {name!r} recorded {count_text(len(seen), 'value')}, not {number + 1}", where=i.place)
    return _expect_equal(m, i, (seen[number], operands[0]))


#: Custom-call target to meaning.
MEANINGS: Mapping[str, Local] = MappingProxyType(
    {
        "check.expect_eq": _check(_expect_equal),
        "check.expect_almost_eq": _check(_expect_almost_equal),
        "check.expect_close": _check(_expect_close),
        "check.expect_serialized_eq": _expect_probed,
        "interpreter.probe": _probe,
    }
)
