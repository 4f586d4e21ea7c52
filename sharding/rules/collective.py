"""Rows of the collectives inside manual computations: free axes pass through the dimensions that members do not cut.

They speak about devices along manual axes, which the shardings of values inside do not name.
"""

from __future__ import annotations

from collections.abc import Mapping

from shardc.hlo.ir.opset import OPS
from shardc.sharding.rules.factor_rule import FactorRule
from shardc.sharding.rules.signature import FactorRow, Row, Signature, Unsupported

__all__ = ["RULES"]

_PAIRS = "asynchronous pairs and transfers belong to a program that is partitioned already"


def _one_by_one(sig: Signature) -> FactorRule:
    """Result k is made of operand k; a dimension whose size changes, or that is cut or joined, is whole."""
    b = sig.builder()
    whole = sig.attrs[0] or () if sig.attrs else ()
    n = len(sig.operands)
    if n != len(sig.results):  # a permute of slices, which propagation writes out before
        return b.build()
    for k, (operand, result) in enumerate(zip(sig.operands, sig.results, strict=True)):
        for d, (size, new) in enumerate(zip(operand.dims, result.dims, strict=True)):
            if d not in whole and size == new:
                b.add(size, [(k, d), (n + k, d)])
    return b.build()


def _exchange(sig: Signature) -> FactorRule:
    """Every result is made of all operands, which look the same, unless one array is cut along a dimension."""
    if sig.attrs[0]:
        return _one_by_one(sig)
    b = sig.builder()
    shapes = (*sig.operands, *sig.results)
    for d, size in enumerate(shapes[0].dims):
        b.add(size, [(t, d) for t in range(len(shapes))])
    return b.build()


def _rows(sig: Signature) -> FactorRule:
    """Rows go around whole, and what is behind them is split in data, output and result alike."""
    b = sig.builder()
    data, output = sig.operands[:2]
    for d in range(1, output.rank):
        b.add(data.dims[d], [(0, d), (1, d), (len(sig.operands), d)])
    return b.build()


def _no_dimensions(sig: Signature) -> FactorRule:
    return sig.builder().build()


RULES: Mapping[str, Row] = {
    **{o: Unsupported(_PAIRS) for o, op in OPS.items() if op.family == "collective"},
    **dict.fromkeys(("all-reduce", "collective-broadcast", "collective-permute"), FactorRow(_one_by_one)),
    **dict.fromkeys(("all-gather", "reduce-scatter"), FactorRow(_one_by_one, ("dimensions",))),
    "all-to-all": FactorRow(_exchange, ("dimensions",)),
    "ragged-all-to-all": FactorRow(_rows),
    **dict.fromkeys(("partition-id", "replica-id"), FactorRow(_no_dimensions)),
}
