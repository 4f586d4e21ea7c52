"""Combining the members of a group: one fixed tree over positions, element by element.

Neighbours are combined level by level, ``((0 1) (2 3)) ((4 5) 6)``; an odd last member moves up unchanged. The
tree depends on the number of members only, and every step is the same function of two elements wherever they lie
in a buffer, so all transports, chunk sizes and members get identical bits.

Floats narrower than 32 bits are combined in float32 and rounded once at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.hlo.types import DType

__all__ = ["REDUCTIONS", "keeps_partial_sums", "reduce_members", "supports_reduction"]

Array = NDArray[Any]
Combine = Callable[[Array, Array], Array]


def _greater(a: Array, b: Array) -> Array:
    # Not np.maximum: its choice between +0 and -0 may depend on where in the buffer the pair lies.
    return np.where((a >= b) | np.not_equal(a, a), a, b)


def _smaller(a: Array, b: Array) -> Array:
    return np.where((a <= b) | np.not_equal(a, a), a, b)


REDUCTIONS: Mapping[str, Combine] = MappingProxyType(
    {
        "add": np.add,
        "multiply": np.multiply,
        "maximum": _greater,
        "minimum": _smaller,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
    }
)


def supports_reduction(reduction: str, dtype: DType) -> bool:
    """Is ``reduction`` defined on elements of ``dtype``? Complex numbers have no order, floats no bits."""
    match reduction:
        case "add" | "multiply":
            return True
        case "maximum" | "minimum":
            return not dtype.is_complex
        case "and" | "or":
            return dtype.kind in ("pred", "signed", "unsigned")
        case _:
            return False


def reduce_members(reduction: str, dtype: DType, members: Sequence[Array]) -> Array:
    """Combine the operands of a group, ordered by position; the result is a new array.

    Example: ``reduce_members("add", DTYPES["f32"], [a, b, c])`` is ``(a + b) + c``.
    """
    if len(members) == 1:
        return members[0].copy()
    wide = _accumulator(dtype)
    combine = REDUCTIONS[reduction]
    level = list(members) if wide == dtype.numpy else [m.astype(wide) for m in members]
    with np.errstate(all="ignore"):
        while len(level) > 1:
            pairs = [combine(a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
            level = pairs + level[len(pairs) * 2 :]
        return _narrow(level[0], dtype)


def keeps_partial_sums(dtype: DType) -> bool:
    """Can the result of a subtree be kept as an element of ``dtype``, with the same total in the end?"""
    return dtype.bits >= 8 and _accumulator(dtype) == dtype.numpy


def _accumulator(dtype: DType) -> np.dtype[Any]:
    if dtype.is_integer and dtype.bits < 8:
        return np.dtype(np.int8 if dtype.kind == "signed" else np.uint8)
    return dtype.accumulator.numpy


def _narrow(total: Array, dtype: DType) -> Array:
    if dtype.is_integer and dtype.bits < 8:
        # Keep the low bits: sums of sub-byte integers wrap around.
        shift = 8 - dtype.bits
        total = (total << shift) >> shift
    return total.astype(dtype.numpy, copy=False)
