"""Loads and stores of one element or one vector of elements, masked where lanes may lie outside an array."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from shardc.compiler.elements.arithmetic.registers import decode, encode, memory_type, part_count
from shardc.hlo.ir.types import DType
from shardc.native.math.vector import (
    I1,
    I32,
    I64,
    constant,
    intrinsic,
    shuffle,
    undef,
    vector_constant,
    with_lanes,
    zero,
)

__all__ = ["LINE", "gather", "load", "store", "stream"]

#: Bytes of a cache line.
LINE = 64


def _pointer(b: ir.IRBuilder, base: ir.Value, offset: ir.Value, t: ir.Type, parts: int) -> ir.Value:
    if parts == 2:
        offset = b.shl(offset, constant(I64, 1))
    return b.gep(base, [offset], source_etype=t)


def _contiguous(
    b: ir.IRBuilder, base: ir.Value, pointer: ir.Value, t: ir.Type, lanes: int, mask: ir.Value | None, align: int
) -> ir.Value:
    vector = with_lanes(t, lanes)
    if mask is None:
        return b.load(pointer, typ=vector, align=align)
    # Where no lane is read, the place may be outside of all memory: the processor then suppresses a fault, which took
    # 330 ns for 16 lanes where a load takes one.
    bits = ir.IntType(lanes)
    pointer = b.select(b.icmp_unsigned("!=", b.bitcast(mask, bits), constant(bits, 0)), pointer, base)
    arguments = [pointer, constant(I32, align), mask, zero(vector)]
    return intrinsic(b, "llvm.masked.load", vector, arguments)


def load(
    b: ir.IRBuilder, base: ir.Value, offset: ir.Value, dtype: DType, lanes: int, mask: ir.Value | None = None
) -> tuple[ir.Value, ...]:
    """``lanes`` consecutive elements from element ``offset`` of ``base``, in register form.

    ``mask`` is an i1 per lane (vectors only); lanes without it read nothing and give zero.
    """
    t, parts = memory_type(dtype), part_count(dtype)
    pointer = _pointer(b, base, offset, t, parts)
    align = dtype.nbytes // parts
    if parts == 1:
        return (decode(b, _contiguous(b, base, pointer, t, lanes, mask, align), dtype),)
    if lanes == 1:
        second = b.gep(pointer, [constant(I64, 1)], source_etype=t)
        return b.load(pointer, typ=t, align=align), b.load(second, typ=t, align=align)
    both = None if mask is None else _interleave(b, mask, mask)
    pairs = _contiguous(b, base, pointer, t, 2 * lanes, both, align)
    return tuple(shuffle(b, pairs, None, range(first, 2 * lanes, 2)) for first in (0, 1))


def _interleave(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    n = x.type.count
    order = [k for lane in range(n) for k in (lane, n + lane)]
    return shuffle(b, x, y, order)


def store(
    b: ir.IRBuilder, parts: tuple[ir.Value, ...], base: ir.Value, offset: ir.Value, dtype: DType, mask: ir.Value | None
) -> None:
    """Write consecutive elements from element ``offset`` of ``base``; masked-off lanes are not written."""
    t = memory_type(dtype)
    pointer = _pointer(b, base, offset, t, len(parts))
    align = dtype.nbytes // len(parts)
    if len(parts) == 2 and not isinstance(parts[0].type, ir.VectorType):
        b.store(parts[0], pointer, align=align)
        b.store(parts[1], b.gep(pointer, [constant(I64, 1)], source_etype=t), align=align)
        return
    value = _stored(b, parts, dtype)
    if len(parts) == 2 and mask is not None:
        mask = _interleave(b, mask, mask)
    if mask is None:
        b.store(value, pointer, align=align)
    else:
        arguments = [value, pointer, constant(I32, align), mask]
        intrinsic(b, "llvm.masked.store", ir.VoidType(), arguments)


def _stored(b: ir.IRBuilder, parts: tuple[ir.Value, ...], dtype: DType) -> ir.Value:
    """A vector of elements as memory holds them."""
    return _interleave(b, *parts) if len(parts) == 2 else encode(b, parts[0], dtype)


def stream(b: ir.IRBuilder, parts: tuple[ir.Value, ...], base: ir.Value, offset: ir.Value, dtype: DType) -> None:
    """Write vectors that fill cache lines, or parts of one that follow each other, past the cache.

    For what nobody reads soon. ``base`` starts a line (64 bytes), ``offset`` is a multiple of the vector's size or of a
    line's, and the kernel must end with a fence.
    """
    align = min(LINE, parts[0].type.count * dtype.nbytes)
    stored = b.store(_stored(b, parts, dtype), _pointer(b, base, offset, memory_type(dtype), len(parts)), align=align)
    stored.set_metadata("nontemporal", b.module.add_metadata([constant(I32, 1)]))


def by_lane(b: ir.IRBuilder, offsets: ir.Value, action: Callable[[ir.Value, ir.Value], None]) -> None:
    """``action(lane, offset)`` for each lane's offset."""
    for lane in range(offsets.type.count):
        at = constant(I32, lane)
        action(at, b.extract_element(offsets, at))


def gather(
    b: ir.IRBuilder, base: ir.Value, offsets: ir.Value, dtype: DType, mask: ir.Value | None
) -> tuple[ir.Value, ...]:
    """One element per lane of the i64 vector ``offsets``; masked-off lanes read element 0 of a non-empty array."""
    t, parts = memory_type(dtype), part_count(dtype)
    lanes = offsets.type.count
    if mask is not None:
        offsets = b.select(mask, offsets, zero(offsets.type))
    if parts == 2:
        offsets = b.shl(offsets, constant(offsets.type, 1))
    align = dtype.nbytes // parts
    results = []
    for part in range(parts):
        at = b.add(offsets, constant(offsets.type, part)) if part else offsets
        stored: ir.Value = undef(with_lanes(t, lanes))
        for lane in range(lanes):
            number = constant(I32, lane)
            pointer = b.gep(base, [b.extract_element(at, number)], source_etype=t)
            stored = b.insert_element(stored, b.load(pointer, typ=t, align=align), number)
        results.append(decode(b, stored, dtype) if parts == 1 else stored)
    return tuple(results)


def lane_numbers(lanes: int, bits: int) -> ir.Value:
    return vector_constant(range(lanes), ir.IntType(bits))


def scatter(
    b: ir.IRBuilder,
    parts: tuple[ir.Value, ...],
    base: ir.Value,
    offsets: ir.Value,
    dtype: DType,
    mask: ir.Value | None = None,
) -> None:
    """Write one element per lane of the i64 vector ``offsets``, in order of lanes; masked-off lanes are not written."""
    t = memory_type(dtype)
    values = parts if len(parts) == 2 else (encode(b, parts[0], dtype),)

    def write(at: ir.Value, offset: ir.Value) -> None:
        pointer = _pointer(b, base, offset, t, len(values))
        for number, v in enumerate(values):
            place = b.gep(pointer, [constant(I64, number)], source_etype=t) if number else pointer
            b.store(b.extract_element(v, at), place, align=dtype.nbytes // len(values))

    def write_if(at: ir.Value, offset: ir.Value) -> None:
        with b.if_then(b.extract_element(mask, at)):
            write(at, offset)

    by_lane(b, offsets, write if mask is None else write_if)


def any_lane(b: ir.IRBuilder, mask: ir.Value) -> ir.Value:
    return intrinsic(b, "llvm.vector.reduce.or", I1, [mask])
