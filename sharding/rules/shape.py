"""Factor rules of ops that move elements: broadcast, transpose, reshape, slice, pad, concatenate and friends."""

from __future__ import annotations

from collections.abc import Mapping

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import Shape
from shardc.sharding.rules.factor_rule import FactorKind, FactorRule
from shardc.sharding.rules.reshape import reshape, widening_rule
from shardc.sharding.rules.signature import FactorRow, Replicate, Row, Signature, replicate_rule

__all__ = ["RULES"]


def _broadcast(sig: Signature) -> FactorRule:
    """Mapped dimensions pass through; new ones are factors of the result alone."""
    operand, result = sig.operands[0], sig.results[0]
    source = {out: d for d, out in enumerate(sig.attrs[0])}
    b = sig.builder()
    for out, size in enumerate(result.dims):
        d = source.get(out)
        if d is None:
            b.add(size, [(1, out)])
        elif operand.dims[d] == size:
            b.add(size, [(0, d), (1, out)])
        else:
            b.add(operand.dims[d], [(0, d)])
            b.add(size, [(1, out)])
    return b.build()


def _transpose(sig: Signature) -> FactorRule:
    b = sig.builder()
    for out, d in enumerate(sig.attrs[0]):
        b.add(sig.operands[0].dims[d], [(0, d), (1, out)])
    return b.build()


def _reshape(sig: Signature) -> FactorRule:
    return reshape(sig.operands[0].dims, sig.results[0].dims)


def _bitcast(sig: Signature) -> FactorRule:
    """A reshape; where elements change their width, the parts of a wide one are a minor factor that stays whole."""
    operand, result = sig.operands[0], sig.results[0]
    if operand.size == result.size:
        return reshape(operand.dims, result.dims)
    narrow_is_result = result.size > operand.size
    wide, narrow = (operand, result) if narrow_is_result else (result, operand)
    if not wide.size or narrow.size % wide.size:
        return replicate_rule(sig, "the element widths of this bitcast are not multiples of each other")
    return widening_rule(wide.dims, narrow.dims, narrow.size // wide.size, wide_first=narrow_is_result)


def _same_or(kind: FactorKind, sig: Signature, moved: tuple[int, ...]) -> FactorRule:
    """Pointwise, but the dimensions in ``moved`` are of ``kind``; sizes are the operand's."""
    b = sig.builder()
    tensors = [t for t, s in enumerate((*sig.operands, *sig.results)) if s.rank]
    for d, size in enumerate(sig.operands[0].dims):
        b.add(size, [(t, d) for t in tensors], kind if d in moved else FactorKind.PASS_THROUGH)
    return b.build()


def _changed_dims(a: Shape, b: Shape) -> tuple[int, ...]:
    return tuple(d for d, (m, n) in enumerate(zip(a.dims, b.dims, strict=True)) if m != n)


def _concatenate(sig: Signature) -> FactorRule:
    """Operands share the factor of the concatenated dimension, whose size is the result's."""
    dim, joins_slices = sig.attrs[0][0], sig.attrs[1]
    kind = FactorKind.PERMUTATION if joins_slices else FactorKind.NEED_REPLICATION
    b = sig.builder()
    for d, size in enumerate(sig.results[0].dims):
        places = [(t, d) for t in range(len(sig.operands) + 1)]
        b.add(size, places, kind if d == dim else FactorKind.PASS_THROUGH)
    return b.build()


def _joins_slices(i: Instruction) -> tuple[bool]:
    """Whether the operands are all slices, or one value and slices of it. Then the elements only change places."""
    slices = [o.opcode == "slice" for o in i.operands]
    sources = {o.operands[0] if cut else o for o, cut in zip(i.operands, slices, strict=True)}
    return (all(slices) or (any(slices) and len(sources) == 1),)


def _slice(sig: Signature) -> FactorRule:
    return _same_or(FactorKind.PERMUTATION, sig, _changed_dims(sig.operands[0], sig.results[0]))


def _pad(sig: Signature) -> FactorRule:
    moved = tuple(d for d, p in enumerate(sig.attrs[0]) if tuple(p) != (0, 0, 0))
    return _same_or(FactorKind.PERMUTATION, sig, moved)


def _reverse(sig: Signature) -> FactorRule:
    return _same_or(FactorKind.PERMUTATION, sig, sig.attrs[0])


def _source(sig: Signature) -> FactorRule:
    """A value made from nothing: every dimension of the result stands alone."""
    b = sig.builder()
    for d, size in enumerate(sig.results[0].dims):
        b.add(size, [(0, d)])
    return b.build()


RULES: Mapping[str, Row] = {
    "broadcast": FactorRow(_broadcast, ("dimensions",)),
    "reshape": FactorRow(_reshape),
    "bitcast": FactorRow(_bitcast),
    "transpose": FactorRow(_transpose, ("dimensions",)),
    "concatenate": FactorRow(_concatenate, ("dimensions",), _joins_slices),
    "slice": FactorRow(_slice),
    "pad": FactorRow(_pad, ("padding",)),
    "reverse": FactorRow(_reverse, ("dimensions",)),
    "iota": FactorRow(_source),
    "constant": FactorRow(_source),
    "get-dimension-size": Replicate("the size of a dynamic dimension is a property of the whole array"),
    "set-dimension-size": Replicate("a dynamic dimension cannot be split"),
    "dynamic-reshape": Replicate("the sizes are known at run time only"),
}
