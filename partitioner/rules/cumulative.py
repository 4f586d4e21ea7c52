"""Windows over everything before (or after) an element: cumulative sums, products, maxima along split dimensions.

The shards' totals, one number per line, are gathered, and every device combines those of the shards before its own
with what it accumulates: a single line starts from them, several lines get them behind. Any combination of scalars will
do, of several arrays at once too; where it is not one known operation, the initial value is its identity, as HLO wants
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.opset import OPS, Window, WindowDim
from shardc.hlo.ir.types import array_shape
from shardc.partitioner.emit.emitter import Emitter, identity_of
from shardc.partitioner.emit.layout import Atoms, AxisTable
from shardc.partitioner.rules.reduction import same_reduction
from shardc.partitioner.strategy.choose import SplitProblem
from shardc.partitioner.strategy.rule import Local, LocalSite, all_factors, always
from shardc.sharding.rules import factor_rule
from shardc.sharding.rules.factor_rule import FactorKind, FactorRule, RuleBuilder

__all__ = ["CUMULATIVE", "not_cumulative_rule"]

_COMBINED = ("add", "multiply", "maximum", "minimum", "and", "or", "xor")


def _accumulate(op: Instruction) -> tuple[int, bool] | None:
    """(dimension, backwards) of a window over the whole of one dimension, up to or from each element."""
    if not _by_element(op.attrs["to_apply"]):
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


def _by_element(body: Computation) -> bool:
    """Whether the body is arithmetic that could be done on whole arrays as well."""
    simple = ("parameter", "constant", "tuple")
    return all(i.opcode in simple or (OPS[i.opcode].family == "elementwise" and i.opcode != "map") for i in body)


def _known(body: Computation) -> bool:
    """Whether the body is one operation whose identity is known."""
    root = body.root
    parameters = all(o.opcode == "parameter" for o in root.operands)
    return root.opcode in _COMBINED and parameters and len(set(root.operands)) == 2


def _rule(op: Instruction) -> FactorRule | None:
    found = _accumulate(op)
    return None if found is None else _equation(op.operands[0].shape.dims, found[0], len(op.operands) // 2)


@lru_cache(maxsize=4096)
def _equation(dims: tuple[int, ...], along: int, count: int) -> FactorRule:
    """The accumulated dimension is split in operands and results, under a factor that does not simply pass through."""
    b = RuleBuilder([*[dims] * count, *[()] * count], [dims] * count)
    for d, n in enumerate(dims):
        kind = FactorKind.PERMUTATION if d == along else FactorKind.PASS_THROUGH
        b.add(n, [(t, d) for t in (*range(count), *range(2 * count, 3 * count))], kind)
    return b.build()


def not_cumulative_rule(op: Instruction) -> FactorRule | None:
    """The propagation's rule of other windows: a halo of a cumulative one would be nearly all shards."""
    return None if _accumulate(op) is not None else factor_rule(op)


def _sends(table: AxisTable, problem: SplitProblem, factors: tuple[Atoms, ...]) -> tuple[float, int]:
    """The gathered totals: one element of the other dimensions from every other shard."""
    (along,) = problem.rule.of_kind(FactorKind.PERMUTATION)
    g = table.extent(factors[along])
    if g == 1:
        return (0.0, 0)
    line = 1
    for f, (factor, atoms) in enumerate(zip(problem.rule.factors, factors, strict=True)):
        if f != along:
            line *= -(-factor.size // table.extent(atoms))
    sizes = [nbytes for _, nbytes, _ in problem.results]
    return (float(line * sum(sizes) * (g - 1)), len(sizes))


def _emit(site: LocalSite) -> list[Instruction]:
    found = _accumulate(site.op)
    assert found is not None
    along, backwards = found
    em, body, count = site.em, site.op.attrs["to_apply"], len(site.shapes)
    identities = site.operands[count:]
    if _known(body):
        identities = [em.scalar(identity_of(body.root.opcode, s.dtype), s.dtype) for s in site.shapes]
    arrays = [site.masked(i, (along,), identity) for i, identity in enumerate(identities)]
    n = arrays[0].shape.dims[along]
    edge = WindowDim(n, pad_high=n - 1) if backwards else WindowDim(n, pad_low=n - 1)
    window = Window(tuple(edge if d == along else w for d, w in enumerate(site.op.attrs["window"].dims)))
    atoms, initials = site.operand_atoms(0, along), site.operands[count:]
    if not atoms:
        return site.emit([*arrays, *initials], window=window)
    totals = em.reduce(body, arrays, identities, along)
    before = _of_shards_before(em, body, totals, (identities, atoms, backwards))
    if before[0].shape.size == 1 and (_known(body) or not backwards):
        before = [em.reshape(b, ()) for b in before]
        return site.emit([*arrays, *_on_arrays(em, body, [*initials, *before])], window=window)
    own = site.emit([*arrays, *initials], window=window)
    kept = tuple(d for d in range(own[0].shape.rank) if d != along)
    spread = [em.add("broadcast", x.shape.plain, b, dimensions=kept) for x, b in zip(own, before, strict=True)]
    return _on_arrays(em, body, [*own, *spread] if backwards else [*spread, *own])


def _of_shards_before(
    em: Emitter,
    body: Computation,
    totals: Sequence[Instruction],
    what: tuple[Sequence[Instruction], Atoms, bool],
) -> list[Instruction]:
    """The totals of the shards before one's own (behind it, backwards) combined, for (identities, atoms, backwards)."""
    identities, atoms, backwards = what
    counted = []
    for x, identity in zip(totals, identities, strict=True):
        gathered = em.all_gather(em.reshape(x, (1, *x.shape.dims)), 0, atoms)
        g = gathered.shape.dims[:1]
        place, here = em.global_index(g, 0, ()), em.splat(em.coordinate(atoms), g)
        other = em.add("compare", array_shape("pred", *g), place, here, direction="GT" if backwards else "LT")
        dims = gathered.shape.dims
        other = em.add("broadcast", array_shape("pred", *dims), other, dimensions=(0,))
        counted.append(em.select(other, gathered, em.splat(identity, dims)))
    return em.reduce(body, counted, identities, 0)


def _on_arrays(em: Emitter, body: Computation, operands: Sequence[Instruction]) -> list[Instruction]:
    """A computation of scalars done on arrays element by element."""
    dims = operands[0].shape.dims
    new: dict[Instruction, Instruction] = {p: operands[p.attrs["index"]] for p in body.parameters}
    for i in body:
        if i.opcode == "constant":
            new[i] = em.splat(em.scalar(i.attrs["literal"].array, i.shape.dtype), dims)
        elif i.opcode not in ("parameter", "tuple"):
            new[i] = em.add(i.opcode, i.shape.plain.with_dims(dims), *(new[o] for o in i.operands), **i.attrs)
    root = body.root
    return [new[o] for o in (root.operands if root.opcode == "tuple" else (root,))]


CUMULATIVE = Local(
    "cumulative windows by the totals of the shards",
    _emit,
    all_factors,
    same_reduction,
    rule=_rule,
    sends=always(_sends),
)
"""A way for reduce-window: sums (or another known operation) of everything up to or from each element."""
