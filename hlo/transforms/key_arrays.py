"""Keys of sorts as arrays: unsigned integers in the order of the elements, and the elements that have them."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.sort_keys import SortKey
from shardc.hlo.ir.types import DTYPES, DType, Shape

__all__ = ["ArrayWriter", "element_array", "key_array"]


class ArrayWriter(Protocol):
    """What writes instructions on arrays."""

    def add(self, opcode: str, shape: Shape, *operands: Instruction, **attrs: Any) -> Instruction: ...

    def scalar(self, value: ArrayLike, dtype: DType, /) -> Instruction: ...

    def splat(self, scalar: Instruction, dims: tuple[int, ...], /) -> Instruction: ...


def key_array(w: ArrayWriter, x: Instruction, key: SortKey) -> Instruction:
    """Unsigned integers in the order of the elements."""
    dtype, dims = key.dtype, x.shape.dims
    if dtype.is_float:
        if key.zeros_equal:
            zero = w.splat(w.scalar(0.0, dtype), dims)
            x = _select(w, _compare(w, x, zero, "EQ"), zero, x)
        if key.nans_equal:
            x = _select(w, _compare(w, x, x, "NE"), w.splat(w.scalar(np.nan, dtype), dims), x)
    kind = DTYPES[f"u{8 * dtype.nbytes}"]
    sign = _sign(w, kind, dims)
    if dtype.kind == "pred":
        found = w.add("convert", x.shape.with_dtype(kind).plain, x)
    else:
        found = x if dtype is kind else w.add("bitcast-convert", x.shape.with_dtype(kind).plain, x)
    if dtype.is_float:
        negative = _compare(w, found, sign, "GE")
        found = _select(w, negative, w.add("not", found.shape, found), w.add("xor", found.shape, found, sign))
    elif dtype.kind == "signed":
        found = w.add("xor", found.shape, found, sign)
    return w.add("not", found.shape, found) if key.descending else found


def element_array(w: ArrayWriter, keys: Instruction, key: SortKey) -> Instruction:
    """The elements that have ``keys``: of those with one key, the one that `key_array` takes for all."""
    dtype, kind = key.dtype, keys.shape.dtype
    sign = _sign(w, kind, keys.shape.dims)
    found = w.add("not", keys.shape, keys) if key.descending else keys
    if dtype.is_float:
        positive = _compare(w, found, sign, "GE")
        found = _select(w, positive, w.add("xor", found.shape, found, sign), w.add("not", found.shape, found))
    elif dtype.kind == "signed":
        found = w.add("xor", found.shape, found, sign)
    if dtype.kind == "pred":
        return w.add("convert", found.shape.with_dtype(dtype).plain, found)
    return found if dtype is kind else w.add("bitcast-convert", found.shape.with_dtype(dtype).plain, found)


def _sign(w: ArrayWriter, kind: DType, dims: tuple[int, ...]) -> Instruction:
    return w.splat(w.scalar(1 << (kind.bits - 1), kind), dims)


def _compare(w: ArrayWriter, x: Instruction, y: Instruction, direction: str) -> Instruction:
    return w.add("compare", x.shape.with_dtype(DTYPES["pred"]).plain, x, y, direction=direction)


def _select(w: ArrayWriter, where: Instruction, x: Instruction, y: Instruction) -> Instruction:
    return w.add("select", x.shape.plain, where, x, y)
