"""Keys that several elements share: of zeros of both signs, and of NaNs. Sorted items know only their keys, so elements
with such a key are put into their places as they come in the operand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from llvmlite import ir

from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.elements.control_flow import for_range
from shardc.compiler.elements.key_bits import at_key, key_of
from shardc.compiler.elements.sorting import Rows
from shardc.hlo.ir.sort_keys import SortKey
from shardc.native.math.vector import I1, I64, constant

__all__ = ["exact", "is_shared", "put_equals"]


def exact(key: SortKey) -> SortKey:
    """A key in the same order that tells all bits of elements apart."""
    return replace(key, zeros_equal=False, nans_equal=False)


def is_shared(b: ir.IRBuilder, bits: ir.Value, key: SortKey) -> ir.Value:
    """Whether elements with other bits have the key ``bits``, too."""
    found: ir.Value = constant(I1, 0)
    for shared in _shared_keys(b, key):
        found = b.or_(found, b.icmp_unsigned("==", bits, shared))
    return found


def put_equals(e: CpuEmitter, given: ir.Value, result: ir.Value, key: SortKey, rows: Rows, base: ir.Value) -> None:
    """Put elements whose keys are shared into the sorted row at ``base`` of ``result``, in the order of ``given``."""
    b, kind = e.entry.builder, ir.IntType(8 * key.dtype.nbytes)

    def key_at(k: ir.Value) -> ir.Value:
        return key_of(b, at_key(b, result, rows.at(b, base, k), key.dtype), key)[0]

    groups = [(shared, e.slot(I64)) for shared in _shared_keys(b, key)]
    for shared, slot in groups:
        b.store(_lower_bound(e, key_at, rows.length, shared), slot)
    with for_range(b, 0, rows.length) as k:
        value = at_key(b, given, rows.at(b, base, k), key.dtype)
        bits, _ = key_of(b, value, key)
        for equal, slot in groups:
            with b.if_then(b.icmp_unsigned("==", bits, equal), likely=False):
                at = b.load(slot, typ=I64)
                to = b.gep(result, [rows.at(b, base, at)], source_etype=kind)
                b.store(value, to, align=key.dtype.nbytes)
                b.store(b.add(at, constant(I64, 1)), slot)


def _shared_keys(b: ir.IRBuilder, key: SortKey) -> list[ir.Value]:
    """The keys of several bits: of zeros and of NaNs, where such are equal."""
    kind = ir.IntType(8 * key.dtype.nbytes)
    some = [0] * key.zeros_equal + [(1 << (kind.width - 1)) - 1] * key.nans_equal
    return [key_of(b, constant(kind, bits), key)[0] for bits in some]


def _lower_bound(e: CpuEmitter, at: Callable[[ir.Value], ir.Value], length: int, wanted: ir.Value) -> ir.Value:
    """How many of the sorted keys are less than ``wanted``."""
    b = e.entry.builder
    low, high = e.slot(I64), e.slot(I64)
    b.store(constant(I64, 0), low)
    b.store(constant(I64, length), high)
    with for_range(b, 0, length.bit_length()):
        first, past = b.load(low, typ=I64), b.load(high, typ=I64)
        middle = b.lshr(b.add(first, past), constant(I64, 1))
        inside = b.icmp_signed("<", first, past)
        safe = b.select(inside, middle, constant(I64, 0))
        less = b.and_(inside, b.icmp_unsigned("<", at(safe), wanted))
        b.store(b.select(less, b.add(middle, constant(I64, 1)), first), low)
        b.store(b.select(b.or_(less, b.xor(inside, constant(I1, 1))), past, middle), high)
    return b.load(low, typ=I64)
