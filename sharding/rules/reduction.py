"""Factor rules of reductions, sorts and scans."""

from __future__ import annotations

from collections.abc import Mapping

from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.opset import OPS
from shardc.sharding.rules.factor_rule import FactorKind, FactorRule
from shardc.sharding.rules.signature import FactorRow, Row, Signature

__all__ = ["RULES", "along_one_dimension"]


def _reduce(sig: Signature) -> FactorRule:
    """Operands are n inputs, then n scalar initial values; the reduced dimensions are reductions."""
    dimensions, kind = sig.attrs
    n = len(sig.results)
    b = sig.builder()
    out = 0
    for d, size in enumerate(sig.operands[0].dims):
        inputs = [(t, d) for t in range(n)]
        if d in dimensions:
            b.add(size, inputs, FactorKind.REDUCTION)
        else:
            b.add(size, inputs + [(2 * n + t, out) for t in range(n)])
            out += 1
    return b.build(reduction=kind)


def along_one_dimension(sig: Signature, dim: int, kind: FactorKind = FactorKind.NEED_REPLICATION) -> FactorRule:
    """All arrays agree on the dimensions, but for ``dim``, which must be whole, or is of another ``kind``.

    It gives its sharding to nobody where its size changes.
    """
    b = sig.builder()
    shapes = (*sig.operands, *sig.results)
    blocked = any(s.rank and s.dims[dim] != sig.operands[0].dims[dim] for s in shapes)
    for d, size in enumerate(sig.operands[0].dims):
        places = [(t, d) for t, s in enumerate(shapes) if s.rank]
        if d == dim:
            b.add(size, places, kind, blocked=blocked)
        else:
            b.add(size, places)
    return b.build()


def _sort(sig: Signature) -> FactorRule:
    """A sort moves the axes of its dimension to another one; where there is none, it keeps them: shards are sorted and
    exchange what is in the wrong one."""
    dim = sig.attrs[0][0]
    alone = all(n == 1 for d, n in enumerate(sig.operands[0].dims) if d != dim)
    return along_one_dimension(sig, dim, FactorKind.PERMUTATION if alone else FactorKind.NEED_REPLICATION)


def _topk(sig: Signature) -> FactorRule:
    return along_one_dimension(sig, sig.operands[0].rank - 1)


def _scan(sig: Signature) -> FactorRule:
    """Inputs and outputs have the scanned dimension, initial values and carries lack it.

    The body sees whole slices: their dimensions are independent only if it works element by element.
    """
    dimension, by_element = (sig.attrs[0] or (0,))[0], sig.attrs[1]
    others = FactorKind.PASS_THROUGH if by_element else FactorKind.NEED_REPLICATION
    shapes = (*sig.operands, *sig.results)
    rank = max(s.rank for s in shapes)
    long = [t for t, s in enumerate(shapes) if s.rank == rank]
    short = [t for t, s in enumerate(shapes) if s.rank == rank - 1]
    b = sig.builder()
    for d, size in enumerate(shapes[long[0]].dims):
        places = [(t, d) for t in long]
        if d == dimension:
            b.add(size, places, FactorKind.NEED_REPLICATION)
        else:
            b.add(size, places + [(t, d - (d > dimension)) for t in short], others)
    return b.build()


def _by_element(i: Instruction) -> tuple[bool]:
    """Whether the body is made of elementwise operations on slices of one shape (and scalars)."""
    body: Computation = i.attrs["to_apply"]
    simple = ("parameter", "constant", "tuple", "get-tuple-element")
    dims = {leaf.dims for k in body for leaf in k.shape.leaves() if leaf.rank}
    scalar_broadcast = all(not o.shape.rank for k in body if k.opcode == "broadcast" for o in k.operands)
    known = all(
        k.opcode in simple or k.opcode == "broadcast" or (OPS[k.opcode].family == "elementwise" and k.opcode != "map")
        for k in body
    )
    return (known and scalar_broadcast and len(dims) <= 1,)


RULES: Mapping[str, Row] = {
    "reduce": FactorRow(_reduce, ("dimensions", "to_apply")),
    "topk": FactorRow(_topk),
    "sort": FactorRow(_sort, ("dimensions",)),
    "scan": FactorRow(_scan, ("dimensions",), _by_element),
}
