"""The factor rule of a reshape: the finest common split of both shapes, found from both ends.

From the major end, the two current dimensions share their greatest common divisor as a factor; when they are used
up the next ones come in. Where nothing common is left, the minor end is matched in the same way. What remains in
between has no index equation: its major-most dimensions are the same memory range cut elsewhere (a permutation),
the rest must be whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from shardc.sharding.rules.factor_rule import FactorKind, FactorRule, RuleBuilder

__all__ = ["identity_rule", "reshape", "widening_rule"]


@dataclass(slots=True)
class _Dims:
    """One shape while it is matched: what remains of each dimension, and its factors from the two ends."""

    dims: Sequence[int]
    left: list[int] = field(init=False)
    rest: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.rest = list(self.dims)
        self.left = [d for d, n in enumerate(self.dims) if n > 1]


@dataclass(slots=True)
class _FactorSizes:
    """Factor sizes with the (side, dimension) places of each."""

    factors: list[tuple[int, list[tuple[int, int]], FactorKind]] = field(default_factory=list)

    def add(self, size: int, places: list[tuple[int, int]], kind: FactorKind = FactorKind.PASS_THROUGH) -> None:
        self.factors.append((size, places, kind))


def _match(a: _Dims, b: _Dims, end: int, plan: _FactorSizes) -> None:
    """Share factors between the dimensions at one end (0 major, -1 minor) until those have nothing in common."""
    while a.left and b.left:
        i, j = a.left[end], b.left[end]
        common = math.gcd(a.rest[i], b.rest[j])
        if common == 1:
            return
        plan.add(common, [(0, i), (1, j)])
        for side, d in ((a, i), (b, j)):
            side.rest[d] //= common
            if side.rest[d] == 1:
                side.left.remove(d)


def _middle(a: _Dims, b: _Dims, plan: _FactorSizes) -> None:
    """What neither end could match; both sides have the same number of elements left."""
    if a.left and b.left:
        i, j = a.left[0], b.left[0]
        plan.add(a.rest[i], [(0, i), (1, j)], FactorKind.PERMUTATION)
        a.left.pop(0)
        b.left.pop(0)
    for number, side in enumerate((a, b)):
        for d in side.left:
            plan.add(side.rest[d], [(number, d)], FactorKind.NEED_REPLICATION)


def reshape(source: Sequence[int], target: Sequence[int]) -> FactorRule:
    """The rule from dimensions ``source`` to ``target``, which hold equally many elements.

    Example: ``reshape((2, 4, 8), (8, 8))`` is ``([i, j, k])->([ij, k]) {i=2, j=4, k=8}``.
    """
    builder = RuleBuilder([tuple(source)], [tuple(target)])
    if math.prod(source) == 0:
        return builder.build(reason="the array is empty")
    a, b = _Dims(source), _Dims(target)
    major, minor, middle, ones = _FactorSizes(), _FactorSizes(), _FactorSizes(), _FactorSizes()
    _match(a, b, 0, major)
    _match(a, b, -1, minor)
    _middle(a, b, middle)
    for t, dims in enumerate((source, target)):
        for d, size in enumerate(dims):
            if size == 1:
                ones.add(1, [(t, d)], FactorKind.NEED_REPLICATION)
    for size, places, kind in (*major.factors, *middle.factors, *reversed(minor.factors), *ones.factors):
        builder.add(size, places, kind)
    return _in_reading_order(builder.build())


def _in_reading_order(rule: FactorRule) -> FactorRule:
    """The factors numbered along the dimensions, the source's before the target's."""
    first: dict[int, tuple[int, int, int]] = {}
    for side, (tensor,) in enumerate((rule.operands, rule.results)):
        for d, indices in enumerate(tensor):
            for position, f in enumerate(indices):
                first.setdefault(f, (d, position, side))
    order = sorted(first, key=first.__getitem__)
    number = {f: n for n, f in enumerate(order)}
    sides = [(tuple(tuple(number[f] for f in d) for d in t[0]),) for t in (rule.operands, rule.results)]
    return FactorRule(tuple(rule.factors[f] for f in order), sides[0], sides[1], rule.reduction, rule.reason)


def widening_rule(wide: Sequence[int], narrow: Sequence[int], parts: int, *, wide_first: bool) -> FactorRule:
    """The rule between elements and their ``parts``: a reshape of the parts, which the wide side does not have.

    Example: ``widening_rule((2, 4), (2, 16), 4, wide_first=True)`` is ``([i, j])->([i, jk]) {i=2, j=4, k=4}
    need_replication={k}``.
    """
    rule = reshape((*wide, parts), narrow) if wide_first else reshape(narrow, (*wide, parts))
    inner = rule.operands[0] if wide_first else rule.results[0]
    whole = set(inner[-1])
    factors = tuple(
        replace(f, kind=FactorKind.NEED_REPLICATION) if n in whole else f for n, f in enumerate(rule.factors)
    )
    cut = (inner[:-1],)
    return FactorRule(factors, cut if wide_first else rule.operands, rule.results if wide_first else cut)


@lru_cache(maxsize=4096)
def identity_rule(dims: tuple[int, ...], sources: int = 1) -> FactorRule:
    """The rule of an edge: ``sources`` operands and one result of the same dimensions."""
    builder = RuleBuilder([dims] * sources, [dims])
    for d, size in enumerate(dims):
        builder.add(size, [(t, d) for t in range(sources + 1)])
    return builder.build()
