"""What a comparator orders elements by, where that is the usual: numbers, one operand after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.types import DType

__all__ = ["KEY_TYPES", "SortKey", "leading_places", "sort_keys"]

#: Types whose numbers are in order as unsigned integers, once signs are turned.
KEY_TYPES = frozenset(("pred", "s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64"))


@dataclass(frozen=True, slots=True)
class SortKey:
    """The elements of ``operand`` in rising order; floats in total order, but for what is ``_equal``, NaNs last."""

    operand: int
    dtype: DType
    descending: bool = False
    zeros_equal: bool = False
    nans_equal: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether elements with equal keys have the same bits."""
        return not (self.zeros_equal or self.nans_equal)


def sort_keys(comparator: Computation) -> tuple[SortKey, ...] | None:
    """The keys that decide, the first one first; None where a comparator is of another kind.

    `jax.lax.sort`'s comparators are of this kind, with any number of keys that are not complex.
    """
    keys: list[SortKey] = []
    at = comparator.root
    while True:
        last = _key(at)
        if last is not None:
            keys.append(last)
            break
        step = _first_of_several(at)
        if step is None:
            return None
        key, at = step
        keys.append(key)
    return tuple(keys)


def _first_of_several(at: Instruction) -> tuple[SortKey, Instruction] | None:
    """The key and the rest of ``less or (equal and rest)``."""
    if at.opcode != "or":
        return None
    for less, both in (at.operands, at.operands[::-1]):
        key = _key(less)
        if key is None or both.opcode != "and":
            continue
        for equal, rest in (both.operands, both.operands[::-1]):
            if equal.opcode == "compare" and equal.attrs["direction"] == "EQ" and equal.operands == less.operands:
                return key, rest
    return None


def _key(at: Instruction) -> SortKey | None:
    """The key of ``compare(f(x), f(y))``."""
    if at.opcode != "compare" or at.attrs["direction"] not in ("LT", "GT"):
        return None
    left, right = (_canonical(side) for side in at.operands)
    if left is None or right is None or left[1:] != right[1:]:
        return None
    (x, zeros, nans), y = left, right[0]
    first, second = int(x.attrs["index"]), int(y.attrs["index"])
    dtype = x.shape.dtype
    if dtype.name not in KEY_TYPES or first // 2 != second // 2 or first == second:
        return None
    if dtype.is_float and at.attrs.get("type") != "TOTALORDER":
        return None
    descending = (at.attrs["direction"] == "GT") == (first < second)
    return SortKey(first // 2, dtype, descending, zeros, nans)


def _canonical(value: Instruction) -> tuple[Instruction, bool, bool] | None:
    """The parameter that a value is, and whether its zeros, and its NaNs, are made equal."""
    inner, nans = _without(value, "NE", np.isnan)
    inner, zeros = _without(inner, "EQ", lambda x: x == 0 and not np.signbit(x))
    return (inner, zeros, nans) if inner.opcode == "parameter" else None


def _without(value: Instruction, direction: str, wanted: Callable[[Any], Any]) -> tuple[Instruction, bool]:
    """What ``select(compare(x, x or constant), constant, ...)`` is else."""
    if value.opcode != "select":
        return value, False
    condition, constant, other = value.operands
    if condition.opcode != "compare" or condition.attrs["direction"] != direction or constant.opcode != "constant":
        return value, False
    x, limit = condition.operands
    literal = constant.attrs["literal"]
    if x.opcode != "parameter" or literal.splat is None or not wanted(np.float64(literal.splat)):
        return value, False
    if direction == "NE":
        fits = limit is x
    else:
        fits = limit.opcode == "constant" and limit.attrs["literal"].splat == 0 and other is x
    return (other, True) if fits else (value, False)


def leading_places(places: Sequence[int]) -> tuple[int, ...]:
    """Those of ascending places of a sort that are searched: each of the others is the next one after such a place."""
    found: list[int] = []
    for place in places:
        if not found or place > found[-1] + 1:
            found.append(place)
    return tuple(found)
