"""Keys of elements as unsigned integers in the same order, and back; of one element, or of a vector of them."""

from __future__ import annotations

from llvmlite import ir

from shardc.hlo.ir.sort_keys import SortKey
from shardc.hlo.ir.types import DType
from shardc.native.math.vector import I1, constant, with_lanes, with_scalar

__all__ = ["at_key", "key_of", "value_of"]

#: Bits of the fraction of floats.
_FRACTION = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}


def at_key(b: ir.IRBuilder, base: ir.Value, offset: ir.Value, dtype: DType, lanes: int = 1) -> ir.Value:
    """The bits of an element, or of several side by side."""
    kind = ir.IntType(8 * dtype.nbytes)
    return b.load(b.gep(base, [offset], source_etype=kind), typ=with_lanes(kind, lanes), align=dtype.nbytes)


def key_of(b: ir.IRBuilder, value: ir.Value, key: SortKey) -> tuple[ir.Value, ir.Value]:
    """The key of an element's bits, in as many bits, and whether other bits have the same key, and it is of those."""
    kind, dtype, bits = value.type, key.dtype, 8 * key.dtype.nbytes
    sign = constant(kind, 1 << (bits - 1))
    changed: ir.Value = constant(with_scalar(kind, I1), 0)
    found = value
    if dtype.is_float:
        low = constant(kind, (1 << (bits - 1)) - 1)
        if key.zeros_equal:
            is_zero = b.icmp_unsigned("==", b.and_(value, low), constant(kind, 0))
            found = b.select(is_zero, constant(kind, 0), found)
        if key.nans_equal:
            fraction = _FRACTION[dtype.name]
            infinity = constant(kind, (1 << (bits - 1)) - (1 << fraction))
            is_nan = b.icmp_unsigned(">", b.and_(value, low), infinity)
            found = b.select(is_nan, low, found)
        changed = b.icmp_unsigned("!=", found, value)
        found = b.xor(found, b.or_(b.ashr(found, constant(kind, bits - 1)), sign))
    elif dtype.kind == "signed":
        found = b.xor(found, sign)
    return (b.not_(found) if key.descending else found), changed


def value_of(b: ir.IRBuilder, item: ir.Value, key: SortKey) -> ir.Value:
    """The bits of an element with the key in the low bits of ``item``."""
    dtype, bits = key.dtype, 8 * key.dtype.nbytes
    kind = with_scalar(item.type, ir.IntType(bits))
    found = b.trunc(item, kind) if item.type != kind else item
    sign = constant(kind, 1 << (bits - 1))
    found = b.not_(found) if key.descending else found
    if dtype.is_float:
        negative = b.not_(b.ashr(found, constant(kind, bits - 1)))
        return b.xor(found, b.or_(negative, sign))
    return b.xor(found, sign) if dtype.kind == "signed" else found
