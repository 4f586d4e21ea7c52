"""NumPy meaning: data movement whose pattern is fixed. Views wherever NumPy can."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.evaluate.convert import convert_values, read_bits
from shardc.hlo.evaluate.interpreter import Interpreter, OpMeaning
from shardc.hlo.evaluate.values import Array, Value
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.types import Shape

__all__ = ["ROWS", "pad_array"]


def _broadcast(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    x, dims = operands[0], i.attrs["dimensions"]
    if not i.shape.rank:
        return x  # type: ignore[no-any-return]
    order = sorted(range(len(dims)), key=lambda d: int(dims[d]))
    shape = [1] * i.shape.rank
    for d in order:
        shape[dims[d]] = x.shape[d]
    return np.broadcast_to(x.transpose(order).reshape(shape), i.shape.dims)


def _reshape(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    x: Array = operands[0]
    return x if i.operands[0].shape.dims == i.shape.dims else x.reshape(i.shape.dims)


def _physical(shape: Shape) -> tuple[int, ...]:
    """Dimensions from slowest to fastest varying."""
    return shape.layout.minor_to_major[::-1] if shape.layout else tuple(range(shape.rank))


def _bitcast(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    """The same bytes, read in the layout and element type of the result."""
    source, x = i.operands[0].shape, operands[0]
    if source == i.shape:
        return x  # type: ignore[no-any-return]
    order = _physical(i.shape)
    dims = tuple(i.shape.dims[d] for d in order)
    flat = x.transpose(_physical(source))
    if source.dtype is not i.shape.dtype:
        read = read_bits(flat.astype(source.dtype.numpy, copy=False), source.dtype, i.shape.dtype, dims)
        flat = read.astype(m.storage_type(i.shape.dtype), copy=False)
    return np.asarray(flat.reshape(dims).transpose([order.index(d) for d in range(len(order))]))


def _transpose(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    return operands[0].transpose(i.attrs["dimensions"])  # type: ignore[no-any-return]


def _concatenate(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    kind = m.storage_type(i.shape.dtype)
    return np.concatenate([x.astype(kind, copy=False) for x in operands], axis=i.attrs["dimensions"][0])


def _slice(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    return operands[0][tuple(slice(*r) for r in i.attrs["slice"])]  # type: ignore[no-any-return]


def pad_array(x: Array, padding: Sequence[tuple[int, int, int]], value: Array) -> Array:
    """``value`` around and between elements; negative edges cut elements off."""
    dims = [lo + hi + n + max(n - 1, 0) * gap for n, (lo, hi, gap) in zip(x.shape, padding, strict=True)]
    out = np.full(dims, value, x.dtype)
    source: list[slice] = []
    target: list[slice] = []
    for n, size, (low, _, gap) in zip(x.shape, dims, padding, strict=True):
        step = gap + 1
        first = -(low // step) if low < 0 else 0
        last = min(n, (size - 1 - low) // step + 1)
        first, last = min(first, n), max(last, min(first, n))
        source.append(slice(first, last))
        start = low + first * step
        target.append(slice(start, start + (last - first - 1) * step + 1 if last > first else start, step))
    if all(s.stop > s.start for s in source):
        out[tuple(target)] = x[tuple(source)]
    return out


def _pad(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    x, value = operands
    return pad_array(x, i.attrs["padding"], value)


def _reverse(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    return np.flip(operands[0], i.attrs["dimensions"])


def _iota(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    def make() -> Array:
        d = i.attrs["iota_dimension"]
        if not i.shape.rank:
            return np.zeros((), m.storage_type(i.shape.dtype))
        count = convert_values(m, np.arange(i.shape.dims[d]), i.shape.dtype)
        shape = [1] * i.shape.rank
        shape[d] = -1
        return np.broadcast_to(count.reshape(shape), i.shape.dims)

    return m.constant(i, make)


def _literal(m: Interpreter, literal: Literal) -> Value:
    if literal.elements is not None:
        return tuple(_literal(m, e) for e in literal.elements)
    kind = m.storage_type(literal.shape.dtype)
    if literal.is_splat:
        return np.broadcast_to(np.asarray(literal.splat).astype(kind), literal.array.shape)
    return literal.array.astype(kind, copy=False)


def _constant(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
    return m.constant(i, lambda: _literal(m, i.attrs["literal"]))


def _get_dimension_size(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    return np.asarray(operands[0].shape[i.attrs["dimensions"][0]], np.int32)


def _set_dimension_size(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    x, size = operands
    if int(size) != x.shape[i.attrs["dimensions"][0]]:
        raise UnsupportedError(
            "the evaluator does not support dynamic sizes", where=f"%{i.name}", fix="use static shapes"
        )
    return x  # type: ignore[no-any-return]


def _dynamic_reshape(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    sizes = tuple(int(s) for s in operands[1:])
    if sizes != i.shape.dims:
        raise UnsupportedError(f"sizes {sizes} differ from {i.shape}", where=f"%{i.name}", fix="use static shapes")
    return operands[0].reshape(sizes)  # type: ignore[no-any-return]


ROWS: Mapping[str, OpMeaning] = {
    "broadcast": OpMeaning(_broadcast),
    "reshape": OpMeaning(_reshape),
    "bitcast": OpMeaning(_bitcast),
    "transpose": OpMeaning(_transpose),
    "concatenate": OpMeaning(_concatenate),
    "slice": OpMeaning(_slice),
    "pad": OpMeaning(_pad),
    "reverse": OpMeaning(_reverse),
    "iota": OpMeaning(_iota),
    "constant": OpMeaning(_constant),
    "get-dimension-size": OpMeaning(_get_dimension_size),
    "set-dimension-size": OpMeaning(_set_dimension_size),
    "dynamic-reshape": OpMeaning(_dynamic_reshape),
}
