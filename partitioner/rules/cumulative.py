"""Windows over everything before (or after) an element: cumulative sums, products, maxima along split dimensions.

Each shard accumulates its own elements; the shards' totals, one number per line, are gathered, and every device
combines those of the shards before its own into what it has.
"""

from __future__ import annotations

from functools import lru_cache

from shardc.hlo.ir import Instruction
from shardc.hlo.opset import Window, WindowDim
from shardc.hlo.types import array_shape
from shardc.partitioner.choose import Problem
from shardc.partitioner.emitter import identity_of
from shardc.partitioner.layout import Atoms, AxisTable
from shardc.partitioner.rules.reduction import same_reduction
from shardc.partitioner.rules.rule import Local, Site, always
from shardc.sharding.factors import FactorKind, FactorRule, RuleBuilder
from shardc.sharding.rules import factor_rule

__all__ = ["CUMULATIVE", "not_cumulative_rule"]

_COMBINED = ("add", "multiply", "maximum", "minimum", "and", "or")


def _accumulated(op: Instruction) -> tuple[int, bool] | None:
    """(dimension, backwards) of a window over the whole of one dimension, up to or from each element."""
    body = op.attrs["to_apply"].root
    if len(op.operands) != 2 or body.opcode not in _COMBINED or len(set(body.operands)) != 2:
        return None
    if any(o.opcode != "parameter" for o in body.operands):
        return None
    found: tuple[int, bool] | None = None
    for d, (w, n) in enumerate(zip(op.attrs["window"].dims, op.operands[0].shape.dims, strict=True)):
        if w == WindowDim(1):
            continue
        forward = w == WindowDim(n, pad_low=n - 1)
        if found is not None or not (forward or w == WindowDim(n, pad_high=n - 1)):
            return None
        found = (d, not forward)
    return found


def _rule(op: Instruction) -> FactorRule | None:
    found = _accumulated(op)
    return None if found is None else _equation(op.shape.dims, found[0])


@lru_cache(maxsize=4096)
def _equation(dims: tuple[int, ...], along: int) -> FactorRule:
    """The accumulated dimension is split in operand and result, under a factor that does not simply pass through."""
    b = RuleBuilder([dims, ()], [dims])
    for d, n in enumerate(dims):
        kind = FactorKind.PERMUTATION if d == along else FactorKind.PASS_THROUGH
        b.add(n, [(0, d), (2, d)], kind)
    return b.build()


def not_cumulative_rule(op: Instruction) -> FactorRule | None:
    """The propagation's rule of other windows: a halo of a cumulative one would be nearly all shards."""
    return None if _accumulated(op) is not None else factor_rule(op)


def _usable(op: Instruction, rule: FactorRule) -> frozenset[int]:
    return frozenset(range(len(rule.factors)))


def _sends(table: AxisTable, problem: Problem, factors: tuple[Atoms, ...]) -> tuple[float, int]:
    """The gathered totals: one element of the other dimensions from every other shard."""
    (along,) = problem.rule.of_kind(FactorKind.PERMUTATION)
    g = table.extent(factors[along])
    if g == 1:
        return (0.0, 0)
    line = 1
    for f, (factor, atoms) in enumerate(zip(problem.rule.factors, factors, strict=True)):
        if f != along:
            line *= -(-factor.size // table.extent(atoms))
    return (float(line * problem.operands[0].nbytes * (g - 1)), 1)


def _emit(site: Site) -> list[Instruction]:
    found = _accumulated(site.op)
    assert found is not None
    along, backwards = found
    em, dtype, body = site.em, site.shapes[0].dtype, site.op.attrs["to_apply"]
    opcode = body.root.opcode
    identity = em.scalar(identity_of(opcode, dtype), dtype)
    x = site.masked(0, (along,), identity)
    n = x.shape.dims[along]
    edge = WindowDim(n, pad_high=n - 1) if backwards else WindowDim(n, pad_low=n - 1)
    window = Window(tuple(edge if d == along else w for d, w in enumerate(site.op.attrs["window"].dims)))
    (own,) = site.emit([x, site.operands[1]], window=window)
    atoms = site.operand_atoms(0, along)
    if not atoms:
        return [own]
    rest = (*x.shape.dims[:along], *x.shape.dims[along + 1 :])
    total = em.add("reduce", x.shape.with_dims(rest), x, identity, dimensions=(along,), to_apply=body)
    gathered = em.all_gather(em.reshape(total, (1, *rest)), 0, atoms)
    place = em.global_index(gathered.shape.dims, 0, ())
    here = em.splat(em.coordinate(atoms), gathered.shape.dims)
    earlier = em.add(
        "compare",
        array_shape("pred", *gathered.shape.dims),
        place,
        here,
        direction="GT" if backwards else "LT",
    )
    counted = em.select(earlier, gathered, em.splat(identity, gathered.shape.dims))
    before = em.add("reduce", total.shape, counted, identity, dimensions=(0,), to_apply=body)
    kept = tuple(d for d in range(own.shape.rank) if d != along)
    spread = em.add("broadcast", own.shape.plain, before, dimensions=kept)
    return [em.add(opcode, own.shape.plain, *((own, spread) if backwards else (spread, own)))]


CUMULATIVE = Local(
    "cumulative ones by totals of the shards", _emit, _usable, same_reduction, rule=_rule, sends=always(_sends)
)
"""A way for reduce-window: sums (or another known operation) of everything up to or from each element."""
