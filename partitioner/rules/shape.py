"""Operations that move elements, and values made from nothing.

Constants, iotas and broadcast scalars are made afresh in whatever layout is asked for. Slices, pads, concatenations
and reversals run on shards; where elements change shards, `fetch` brings just those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.literal import Literal
from shardc.partitioner.emit.layout import AxisLayout
from shardc.partitioner.reshard.halo import SplitLine, fetch, fetch_dilated, outputs, pick
from shardc.partitioner.reshard.windows import SourceInterval, TargetIntervals
from shardc.partitioner.rewrite.body import Body, Handled
from shardc.partitioner.rules.elementwise import Linear
from shardc.partitioner.rules.readings import DimensionReading, Exchanges, Joined, Mirror, Outputs, whole_source
from shardc.partitioner.rules.reshape import IN_ORDER
from shardc.partitioner.strategy.rule import Local, LocalSite, PartitionRow, SendsOf, linear_in_first
from shardc.partitioner.strategy.values import GlobalValue, Tree
from shardc.sharding.rules import factor_rule
from shardc.sharding.rules.factor_rule import FactorKind, FactorRule, RuleBuilder

__all__ = ["RULES", "moved_dims", "moving_factors", "non_empty"]


def _constant(body: Body, op: Instruction) -> Tree:
    """A splat in any layout; other constants are whole and cut on demand."""
    literal: Literal = op.attrs["literal"]
    if op.shape.is_tuple:
        parts = zip(literal.elements or (), op.shape.elements, strict=True)
        return [
            _constant(body, Instruction("constant", s, (), {"literal": x}, name=op.name, metadata=op.metadata))
            for x, s in parts
        ]
    whole = body.context.table.replicated(op.shape.rank)
    if not literal.is_splat:
        local = body.em.add("constant", op.shape, name=op.name, literal=literal)
        return GlobalValue(op.name, op.shape, whole, local)

    def remake(layout: AxisLayout) -> Instruction:
        dims = body.context.table.local_dims(layout, op.shape.dims)
        return body.em.splat(body.em.scalar(literal.splat, op.shape.dtype), dims)

    return GlobalValue(op.name, op.shape, whole, None, remake=remake)


def _iota(body: Body, op: Instruction) -> Tree:
    """Every device counts from its own offset."""
    dim = op.attrs["iota_dimension"]
    table = body.context.table

    def remake(layout: AxisLayout) -> Instruction:
        local = table.local_dims(layout, op.shape.dims)
        return body.em.global_index(local, dim, layout.dims[dim], op.shape.dtype)

    return GlobalValue(op.name, op.shape, table.replicated(op.shape.rank), None, remake=remake)


def _broadcast(body: Body, op: Instruction) -> Tree:
    """A broadcast whose operand is whole on every device can be made in any layout of its new dimensions."""
    operand = body.value(op.operands[0])
    if op.operands[0].shape.rank or operand.layout.unreduced:
        return body.partition_locally(op, _BROADCAST)
    scalar = body.get(operand, operand.layout, "broadcast needs")
    table = body.context.table

    def remake(layout: AxisLayout) -> Instruction:
        return body.em.splat(scalar, table.local_dims(layout, op.shape.dims))

    return GlobalValue(op.name, op.shape, table.replicated(op.shape.rank), None, remake=remake)


def moved_dims(site: LocalSite) -> Iterator[tuple[int, SplitLine, int]]:
    """Split dimensions along which elements move: (dimension, its line, number of devices)."""
    for f in site.rule.of_kind(FactorKind.PERMUTATION) + site.rule.of_kind(FactorKind.NEED_REPLICATION):
        atoms = site.choice.factors[f]
        if atoms:
            dim = next(d for t, d in site.rule.places(f) if t == len(site.operands))
            yield dim, SplitLine(dim, atoms, f"{site.op.opcode} %{site.op.name} needs"), site.em.table.extent(atoms)


def _slice(site: LocalSite) -> list[Instruction]:
    """Every device fetches what its part of the result is made of; dimensions taken whole keep their local size."""
    (x,) = site.operands
    local = site.local_shape().dims
    bounds = [(0, local[d], 1) if site.operand_atoms(0, d) else b for d, b in enumerate(site.op.attrs["slice"])]
    for dim, line, k in moved_dims(site):
        reading = _sliced(site.op, dim)
        x = fetch(site.em, line, [x], [whole_source(reading.n, k)], reading.target(k), _zero(site))
        bounds[dim] = (0, x.shape.dims[dim], reading.stride)
    return site.emit([x], slice=tuple(bounds))


def _sliced(op: Instruction, dim: int) -> Outputs:
    start, _, stride = op.attrs["slice"][dim]
    return Outputs(op.operands[0].shape.dims[dim], op.shape.dims[dim], start, stride)


def _pick_rule(op: Instruction) -> FactorRule | None:
    """Cut dimensions are summed over: every device gives what it holds of the result, zero for the rest."""
    if op.shape.dtype.kind == "pred":
        return None
    return _picking(op.operands[0].shape.dims, op.shape.dims)


@lru_cache(maxsize=4096)
def _picking(operand: tuple[int, ...], result: tuple[int, ...]) -> FactorRule:
    b = RuleBuilder([operand], [result])
    for d, (n, size) in enumerate(zip(operand, result, strict=True)):
        if n == size:
            b.add(n, [(0, d), (1, d)])
        else:
            b.add(n, [(0, d)], FactorKind.REDUCTION)
            b.add(size, [(1, d)], FactorKind.NEED_REPLICATION, blocked=True)
    return b.build(reduction="sum")


def _pick(site: LocalSite) -> list[Instruction]:
    """The own part of a small slice, so that a sum over devices is a broadcast from those that hold it."""
    (x,) = site.operands
    table, local = site.em.table, site.local_shape().dims
    bounds = [(0, local[d], 1) if site.operand_atoms(0, d) else b for d, b in enumerate(site.op.attrs["slice"])]
    for f in site.rule.of_kind(FactorKind.REDUCTION):
        atoms = site.choice.factors[f]
        if atoms:
            ((_, dim),) = site.rule.places(f)
            start, _, stride = site.op.attrs["slice"][dim]
            span = (local[dim] - 1) * stride + 1
            k, chunk = table.extent(atoms), x.shape.dims[dim]
            source = SourceInterval(0, chunk, True, 0, 0, site.operand_dims(0)[dim])
            x = pick(
                site.em,
                SplitLine(dim, atoms, ""),
                x,
                source,
                TargetIntervals((start,) * k, (span,) * k, span),
                _zero(site),
            )
            bounds[dim] = (0, span, stride)
    return site.emit([x], slice=tuple(bounds))


def _zero(site: LocalSite) -> Instruction:
    return site.em.zero(site.shapes[0].dtype)


def _pad(site: LocalSite) -> list[Instruction]:
    x, fill = site.operands
    padding = list(site.op.attrs["padding"])
    for dim, line, k in moved_dims(site):
        reading = _spread(site.op, dim)
        got = fetch_dilated(site.em, line, x, reading.n, reading.target(k), fill, reading.place)
        x, padding[dim] = got.array, (got.low, got.high, got.dilate - 1)
    return site.emit([x, fill], padding=tuple(padding))


def _spread(op: Instruction, dim: int) -> Outputs:
    low, _, interior = op.attrs["padding"][dim]
    return Outputs(op.operands[0].shape.dims[dim], op.shape.dims[dim], low=low, dilate=interior + 1)


def _concatenate(body: Body, op: Instruction) -> Tree:
    """Slices of one array are read from that array itself, so that a roll is one exchange; so is one between splats."""
    (dim,) = op.attrs["dimensions"]
    views = [_view(o, dim) for o in op.operands]
    sources = [x for x, o in zip((x for x, _ in views), op.operands, strict=True) if not _is_splat(o)]
    alone = len(sources) == 1
    several = {x for x, n in Counter(sources).items() if n > 1 or (alone and x not in op.operands)}
    operands, known = op.operands, dict[str, object]()
    if several:
        parts = [v if v[0] in several else (o, 0) for v, o in zip(views, op.operands, strict=True)]
        operands = tuple(dict.fromkeys(x for x, _ in parts))
        number = {x: n for n, x in enumerate(operands)}
        lengths = [o.shape.dims[dim] for o in op.operands]
        known[_PARTS] = tuple((number[x], start, n) for (x, start), n in zip(parts, lengths, strict=True))
    if unfinished := frozenset(n for n, o in enumerate(operands) if _is_splat(o) and body.value(o).remake is None):
        known[_UNFINISHED] = unfinished
    if not known:
        return body.partition_locally(op, _CONCATENATE)
    joined = op.replace(operands=operands, attrs={**op.attrs, **known})
    body.uses[joined] = body.uses.get(op, 1)
    return body.partition_locally(joined, _VIEWS if several else _CONCATENATE)


#: Attribute of a concatenation of parts of its operands: (operand, first element, number of elements) per part.
_PARTS = "parts"
#: Attribute of a concatenation: operands that are splats of partial sums. No device can make one where it is needed.
_UNFINISHED = "unfinished"


def _view(op: Instruction, dim: int) -> tuple[Instruction, int]:
    """The array that ``op`` is an interval of along ``dim``, and where it begins."""
    if op.opcode != "slice":
        return op, 0
    (source,) = op.operands
    whole = [(0, n, 1) for n in source.shape.dims]
    start, stop, stride = op.attrs["slice"][dim]
    whole[dim] = (start, stop, 1)
    plain = stride == 1 and tuple(map(tuple, op.attrs["slice"])) == tuple(whole)
    return (source, start) if plain else (op, 0)


def _views_rule(op: Instruction) -> FactorRule:
    (dim,) = op.attrs["dimensions"]
    return _joining(len(op.operands), op.shape.dims, tuple(o.shape.dims[dim] for o in op.operands), dim)


@lru_cache(maxsize=4096)
def _joining(count: int, dims: tuple[int, ...], sizes: tuple[int, ...], dim: int) -> FactorRule:
    b = RuleBuilder([(*dims[:dim], n, *dims[dim + 1 :]) for n in sizes], [dims])
    for d, n in enumerate(dims):
        kind = FactorKind.PERMUTATION if d == dim else FactorKind.PASS_THROUGH
        b.add(n, [(t, d) for t in range(count + 1)], kind)
    return b.build()


def _join(site: LocalSite) -> list[Instruction]:
    """Every device fetches its part of the joined dimension; splats are made where they are needed."""
    (dim,) = site.op.attrs["dimensions"]
    (line, k) = next(((line, k) for _, line, k in moved_dims(site)), (SplitLine(dim, (), ""), 1))
    if k == 1 and _PARTS not in site.op.attrs:
        return [site.em.add("concatenate", site.local_shape(), *site.operands, dimensions=(dim,))]
    operands, joined = list(site.operands), _joined(site.op, dim)
    scalars = [site.operands[i].operands[0] if i in joined.made else None for i, _, _ in joined.pieces]
    ends, fill = _ends(scalars)
    sources = []
    for number, source in joined.sources(k):
        if number in ends:
            continue
        sources.append(source)
        scalar, x = scalars[number], operands[source.operand]
        if scalar is not None:
            dims = (*x.shape.dims[:dim], source.length, *x.shape.dims[dim + 1 :])
            operands[source.operand] = site.em.splat(scalar, dims)
    return [fetch(site.em, line, operands, sources, outputs(joined.length, k), _zero(site) if fill is None else fill)]


def _joined(op: Instruction, dim: int) -> Joined:
    """The parts of a concatenation."""
    sizes = tuple(x.shape.dims[dim] for x in op.operands)
    made = frozenset(i for i, x in enumerate(op.operands) if _is_splat(x)) - op.attrs.get(_UNFINISHED, frozenset())
    if _PARTS in op.attrs:
        return Joined(sizes, op.attrs[_PARTS], made)
    return Joined(sizes, tuple((i, 0, n) for i, n in enumerate(sizes)), made)


def _is_splat(x: Instruction) -> bool:
    return x.opcode == "broadcast" and not x.operands[0].shape.rank


def _ends(scalars: Sequence[Instruction | None]) -> tuple[range | set[int], Instruction | None]:
    """Parts at the ends of a concatenation that are of one scalar: what lies outside of the others."""
    fill = scalars[0] if scalars[0] is not None else scalars[-1]
    inner = [n for n, s in enumerate(scalars) if s is not fill or s is None]
    if fill is None or not inner:
        return range(0), None
    return {n for n in range(len(scalars)) if not inner[0] <= n <= inner[-1]}, fill


def _reverse(site: LocalSite) -> list[Instruction]:
    """Every device fetches the mirror image of its part and turns it around."""
    (x,) = site.operands
    for dim, line, k in moved_dims(site):
        reading = Mirror(site.operand_dims(0)[dim])
        x = fetch(site.em, line, [x], [whole_source(reading.n, k)], reading.target(k), _zero(site))
    return site.emit([x])


def non_empty(op: Instruction, rule: FactorRule) -> frozenset[int]:
    """Every factor that is not empty and not marked as one that stays whole."""
    return frozenset(f for f, factor in enumerate(rule.factors) if factor.size and not factor.blocked)


def _movement(op: Instruction, reduction: str) -> tuple[tuple[int, ...], ...]:
    return ((0,),)


def moving_factors(rule: FactorRule) -> Iterator[int]:
    """Factors along which elements move when they are split."""
    moved = rule.of_kind(FactorKind.PERMUTATION) + rule.of_kind(FactorKind.NEED_REPLICATION)
    return (f for f in moved if rule.factors[f].size and not rule.factors[f].blocked)


def _exchanges(reading: Callable[[Instruction, int], DimensionReading]) -> SendsOf:
    """What an operation sends that reads so along a dimension."""

    def sends(op: Instruction, rule: FactorRule) -> Exchanges:
        dims = ((f, next(d for t, d in rule.places(f) if t == 0)) for f in moving_factors(rule))
        return Exchanges(tuple((f, d, reading(op, d)) for f, d in dims))

    return sends


def _all_operands(op: Instruction, reduction: str) -> tuple[tuple[int, ...], ...]:
    return (tuple(range(len(op.operands))),)


def _zero_padding(op: Instruction, reduction: str) -> tuple[tuple[int, ...], ...]:
    value = op.operands[1]
    zero = value.opcode == "constant" and not any(np.asarray(value.attrs["literal"].splat).tobytes())
    return ((0,),) if zero and reduction == "sum" else ()


_BROADCAST = Local("on shards", linear=_movement)
_MOVED = "on shards; along split dimensions only the elements that change shards travel"


def _moving(
    emit: Callable[[LocalSite], list[Instruction]],
    linear: Linear,
    reading: Callable[[Instruction, int], DimensionReading],
    *others: Local,
    rule: Callable[[Instruction], FactorRule | None] = factor_rule,
) -> Local:
    """On shards with an exchange, or as a whole where the operand is there anyway."""
    whole = Local("whole, then cut", emit, linear=linear, rule=rule)
    return Local(_MOVED, emit, non_empty, linear, rule, _exchanges(reading), (whole, *others))


def _mirror(op: Instruction, dim: int) -> Mirror:
    return Mirror(op.shape.dims[dim])


_CONCATENATE = _moving(_join, _all_operands, _joined)
_VIEWS = _moving(_join, _all_operands, _joined, rule=_views_rule)

RULES: Mapping[str, PartitionRow] = {
    "broadcast": Handled("made in any layout, or on shards", _broadcast),
    "reshape": Local("on shards", linear=_movement, alternatives=(IN_ORDER,)),
    "bitcast": Local("on shards", linear=_movement),
    "transpose": Local("on shards", linear=_movement),
    "concatenate": Handled(_MOVED, _concatenate),
    "slice": _moving(
        _slice,
        _movement,
        _sliced,
        Local("each device takes its part, and the parts are summed", _pick, non_empty, linear_in_first, _pick_rule),
    ),
    "pad": _moving(_pad, _zero_padding, _spread),
    "reverse": _moving(_reverse, _movement, _mirror),
    "iota": Handled("made in any layout", _iota),
    "constant": Handled("splats made in any layout, others cut on demand", _constant),
    "get-dimension-size": Local("whole operands"),
    "set-dimension-size": Local("whole operands"),
    "dynamic-reshape": Local("whole operands"),
}
