"""Reshapes of split dimensions that do not divide evenly: the same elements in order, in other chunks.

Where dimensions are cut or merged, both shapes are *runs* of dimensions that hold the same elements in the same
order. If only the major dimension of a run is split, every device holds an interval of the run before and after;
what the two intervals do not share travels, as along any other dimension.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from shardc.hlo.ir.ir import Instruction
from shardc.partitioner.emit.layout import Atoms, AxisTable
from shardc.partitioner.reshard.halo import SplitLine, count_fetched_bytes, fetch
from shardc.partitioner.reshard.windows import SourceInterval, TargetIntervals
from shardc.partitioner.strategy.choose import SplitProblem
from shardc.partitioner.strategy.rule import Local, LocalSite, always
from shardc.sharding.rules.factor_rule import FactorKind, FactorRule, RuleBuilder

__all__ = ["IN_ORDER"]

_Dims = tuple[int, ...]


@lru_cache(maxsize=4096)
def _runs(before: _Dims, after: _Dims) -> tuple[tuple[_Dims, _Dims], ...]:
    """The shortest runs of dimensions, operand's and result's, with equal numbers of elements; none of size 1."""
    left, right = ([d for d, n in enumerate(dims) if n != 1] for dims in (before, after))
    out = []
    while left:
        mine, theirs = [left.pop(0)], [right.pop(0)]
        m, n = before[mine[0]], after[theirs[0]]
        while m != n:
            if m < n:
                mine.append(left.pop(0))
                m *= before[mine[-1]]
            else:
                theirs.append(right.pop(0))
                n *= after[theirs[-1]]
        out.append((tuple(mine), tuple(theirs)))
    return tuple(out)


def _rule(op: Instruction) -> FactorRule | None:
    before, after = op.operands[0].shape.dims, op.shape.dims
    return _in_order(before, after) if math.prod(before) == math.prod(after) > 0 else None


@lru_cache(maxsize=4096)
def _in_order(before: _Dims, after: _Dims) -> FactorRule | None:
    """Major dimensions of runs are split together; None for a reshape that only adds or drops sizes of 1."""
    runs = _runs(before, after)
    if all(len(mine) == len(theirs) == 1 for mine, theirs in runs):
        return None
    b = RuleBuilder([before], [after])
    for mine, theirs in runs:
        same = len(mine) == len(theirs) == 1
        kind = FactorKind.PASS_THROUGH if same else FactorKind.PERMUTATION
        b.add(before[mine[0]], [(0, mine[0]), (1, theirs[0])], kind)
    return b.build()


def _usable(op: Instruction, rule: FactorRule) -> frozenset[int]:
    """Major dimensions of runs; a dimension of one element that is split elsewhere is in no run."""
    return frozenset(f for f, factor in enumerate(rule.factors) if factor.size > 1 and not factor.blocked)


@dataclass(frozen=True, slots=True)
class _SplitRun:
    """A split run: its dimensions before and after, the axes, how many elements, and the chunks of both sides."""

    mine: _Dims
    theirs: _Dims
    atoms: Atoms
    size: int
    before: int
    after: int

    def exchange(self, k: int) -> tuple[SourceInterval, TargetIntervals]:
        """Every device's interval of the result, out of the operand's."""
        starts = tuple(i * self.after for i in range(k))
        target = TargetIntervals(starts, tuple(max(min(self.size - s, self.after), 0) for s in starts), self.after)
        return SourceInterval(0, self.before, True, 0, 0, self.size), target


def _split(
    table: AxisTable, rule: FactorRule, factors: tuple[Atoms, ...], dims: tuple[_Dims, _Dims]
) -> Iterator[_SplitRun]:
    """The split runs whose chunks are others before than after."""
    for mine, theirs in _runs(*dims):
        (f,) = rule.operands[0][mine[0]]
        if factors[f]:
            k, sizes = table.extent(factors[f]), []
            for shape, run in zip(dims, (mine, theirs), strict=True):
                sizes.append(-(-shape[run[0]] // k) * math.prod(shape[d] for d in run[1:]))
            if sizes[0] != sizes[1]:
                yield _SplitRun(mine, theirs, factors[f], math.prod(dims[0][d] for d in mine), sizes[0], sizes[1])


def _reshape(site: LocalSite) -> list[Instruction]:
    """Flat along the runs whose elements travel, then in shape."""
    em, op, (x,) = site.em, site.op, site.operands
    dims = (site.operand_dims(0), site.shapes[0].dims)
    flat: list[int | _SplitRun] = list(range(len(dims[0])))
    for run in _split(em.table, site.rule, site.choice.factors, dims):
        flat[flat.index(run.mine[0])] = run
        flat = [d for d in flat if d not in run.mine]
    x = em.reshape(x, tuple(d.before if isinstance(d, _SplitRun) else x.shape.dims[d] for d in flat))
    zero = em.scalar(x.shape.dtype.numpy.type(0), x.shape.dtype)
    for d, moved in enumerate(flat):
        if isinstance(moved, _SplitRun):
            source, target = moved.exchange(em.table.extent(moved.atoms))
            x = fetch(em, SplitLine(d, moved.atoms, f"{op.opcode} %{op.name} needs"), [x], [source], target, zero)
    return site.emit([x])


def _sends(table: AxisTable, problem: SplitProblem, factors: tuple[Atoms, ...]) -> tuple[float, int]:
    """Bytes and permutes of the exchanges."""
    (operand,), ((result, nbytes, _),) = problem.operands, problem.results
    local = nbytes * math.prod(
        -(-n // table.extent(a for f in indices for a in factors[f]))
        for n, indices in zip(result, problem.rule.results[0], strict=True)
    )
    wire, messages = 0.0, 0
    for run in _split(table, problem.rule, factors, (operand.dims, result)):
        source, target = run.exchange(table.extent(run.atoms))
        sent, rounds = count_fetched_bytes([source], target, local / run.after)
        wire, messages = wire + sent, messages + rounds
    return wire, messages


def _movement(op: Instruction, reduction: str) -> tuple[tuple[int, ...], ...]:
    return ((0,),)


IN_ORDER = Local("on shards; elements that change shards travel", _reshape, _usable, _movement, _rule, always(_sends))
