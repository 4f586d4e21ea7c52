"""The moves a reshard is made of: what each costs and which instructions it becomes.

A dimension of n elements over k devices lies in chunks of ceil(n / k). Where a move would leave another chunk
size (uneven sizes), `rechunk` puts it right: by a local pad or slice when the dimension is whole on every device,
otherwise by permutes of what lies at the boundaries.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from shardc.hlo.ir.groups import AxisPairs
from shardc.hlo.ir.ir import Instruction
from shardc.partitioner.emit.emitter import Emitter
from shardc.partitioner.emit.layout import Atoms, AxisLayout, AxisTable
from shardc.partitioner.reshard.rechunk import rechunk, sent_elements

__all__ = [
    "AllReduce",
    "AllToAll",
    "Cost",
    "Gather",
    "MakePartial",
    "Move",
    "MoveCollectives",
    "PadPart",
    "Permute",
    "ReduceScatter",
    "ReshardStep",
    "Slice",
    "collectives_of",
    "emit_move",
    "move_cost",
    "total_cost",
]

#: Bytes that one device sends, and number of collectives.
Cost = tuple[float, int]


def total_cost(costs: Iterable[Cost]) -> Cost:
    """The sum of ``costs``, added in order on every version of Python (`sum` compensates from 3.12 on)."""
    wire, count = 0.0, 0
    for more in costs:
        wire, count = wire + more[0], count + more[1]
    return wire, count


@dataclass(frozen=True, slots=True)
class Gather:
    """All-gather the minor-most ``atoms`` of dimension ``dim``."""

    dim: int
    atoms: Atoms


@dataclass(frozen=True, slots=True)
class Slice:
    """Keep the own part of dimension ``dim``: ``atoms`` become its minor-most axes. Sends nothing."""

    dim: int
    atoms: Atoms


@dataclass(frozen=True, slots=True)
class AllToAll:
    """Move axes between dimensions, in one exchange: (source dimension, target dimension, atoms) for each part.

    The atoms that leave a source are its minor-most ones, those that reach a target become its minor-most ones, in the
    order of the parts. No dimension is both source and target.
    """

    parts: tuple[tuple[int, int, Atoms], ...]

    @property
    def atoms(self) -> Atoms:
        """Of all parts, in their order: the group's members, major to minor."""
        return tuple(chain.from_iterable(atoms for _, _, atoms in self.parts))


@dataclass(frozen=True, slots=True)
class ReduceScatter:
    """Reduce partial values over ``atoms``, which become the minor-most axes of dimension ``dim``."""

    dim: int
    atoms: Atoms


@dataclass(frozen=True, slots=True)
class AllReduce:
    """Reduce partial values over ``atoms``."""

    atoms: Atoms


@dataclass(frozen=True, slots=True)
class MakePartial:
    """Make a whole value partial over ``atoms``: the first member keeps it, the others hold the identity."""

    atoms: Atoms
    reduction: str


@dataclass(frozen=True, slots=True)
class PadPart:
    """Make a value that is split over ``atoms``, the minor-most axes of dimension ``dim``, partial over them: each
    member's share is its own part, padded with the identity. Sends nothing: a reduce-scatter the other way round."""

    dim: int
    atoms: Atoms
    reduction: str


@dataclass(frozen=True, slots=True)
class Permute:
    """Send whole shards to other devices: same shard sizes, other axes."""


Move = Gather | Slice | AllToAll | ReduceScatter | AllReduce | MakePartial | PadPart | Permute


@dataclass(frozen=True, slots=True)
class ReshardStep:
    """One move with the layouts before and after it."""

    before: AxisLayout
    move: Move
    after: AxisLayout


@dataclass(frozen=True, slots=True)
class MoveCollectives:
    """``times`` collectives over ``atoms``, each with a local result of ``nbytes``."""

    opcode: str
    nbytes: int
    atoms: Atoms
    times: int = 1


def move_cost(table: AxisTable, dims: tuple[int, ...], nbytes: int, step: ReshardStep) -> Cost:
    """Bytes per device and number of collectives of one move of an array of ``dims``, re-chunking included."""
    wire, count = 0.0, 0
    for t in collectives_of(table, dims, nbytes, step):
        wire += t.times * count_sent_bytes(t.opcode, t.nbytes, table.extent(t.atoms))
        count += t.times
    return (wire, count)


def count_sent_bytes(opcode: str, nbytes: float, g: int) -> float:
    """Bytes that one of ``g`` members sends when its result has ``nbytes``, under a bandwidth-optimal algorithm."""
    if opcode == "all-reduce":
        return 2 * nbytes * (g - 1) / g
    if opcode in ("all-gather", "all-to-all"):
        return nbytes * (g - 1) / g
    return float(nbytes * (g - 1)) if opcode == "reduce-scatter" else float(nbytes)


def collectives_of(
    table: AxisTable, dims: tuple[int, ...], nbytes: int, step: ReshardStep
) -> Iterator[MoveCollectives]:
    """The collectives of one move of an array of ``dims`` with elements of ``nbytes``, re-chunking included."""
    before, after = step.before, step.after
    local = list(table.local_dims(before, dims))
    match step.move:
        case Gather(dim, atoms):
            local[dim] *= table.extent(atoms)
            yield MoveCollectives("all-gather", nbytes * math.prod(local), atoms)
            yield from _rechunks(table, dims, nbytes, (after, dim, local, _chunk(table, after, dims, dim)))
        case Slice(dim, atoms):
            wide = _chunk(table, after, dims, dim, atoms)
            yield from _rechunks(table, dims, nbytes, (before, dim, local, wide))
        case AllToAll():
            yield from _exchanges(table, dims, nbytes, step)
        case ReduceScatter(dim, atoms):
            wide = _chunk(table, after, dims, dim, atoms)
            yield from _rechunks(table, dims, nbytes, (before, dim, local, wide))
            yield MoveCollectives("reduce-scatter", nbytes * math.prod(table.local_dims(after, dims)), atoms)
        case AllReduce(atoms):
            yield MoveCollectives("all-reduce", nbytes * math.prod(local), atoms)
        case PadPart(dim, atoms):
            local[dim] *= table.extent(atoms)
            yield from _rechunks(table, dims, nbytes, (after, dim, local, _chunk(table, after, dims, dim)))
        case Permute():
            yield MoveCollectives("collective-permute", nbytes * math.prod(local), moved_atoms(before, after))


def _exchanges(table: AxisTable, dims: tuple[int, ...], nbytes: int, step: ReshardStep) -> Iterator[MoveCollectives]:
    """The collectives of an all-to-all: targets get chunks that fit, then the exchange, then sources do."""
    assert isinstance(step.move, AllToAll)
    local = list(table.local_dims(step.before, dims))
    sources, targets = _join(step.move, 0), _join(step.move, 1)
    for t, atoms in targets.items():
        yield from _rechunks(table, dims, nbytes, (step.before, t, local, _chunk(table, step.after, dims, t, atoms)))
    yield MoveCollectives("all-to-all", nbytes * math.prod(local), step.move.atoms)
    for t, atoms in targets.items():
        local[t] //= table.extent(atoms)
    for s, atoms in sources.items():
        local[s] *= table.extent(atoms)
    for s in sources:
        yield from _rechunks(table, dims, nbytes, (step.after, s, local, _chunk(table, step.after, dims, s)))


def moved_atoms(before: AxisLayout, after: AxisLayout) -> Atoms:
    """The atoms over which a permute sends: those that change their dimension or, within one, their order."""
    old, new = _change(before, after)
    return tuple(sorted({*old, *new}))


def emit_move(
    em: Emitter, x: Instruction, dims: tuple[int, ...], step: ReshardStep, *, moved: bool = False
) -> Instruction:
    """Instructions that take the local value ``x`` of a global array of ``dims`` one step further.

    Of a partial value that was only ``moved``, bits are put together.
    """
    table, before, after = em.table, step.before, step.after
    match step.move:
        case Gather(dim, atoms):
            x = em.all_gather(x, dim, atoms)
            return rechunk(em, x, dims[dim], (dim, after.dims[dim], _chunk(table, after, dims, dim)))
        case Slice(dim, atoms):
            chunk = _chunk(table, after, dims, dim)
            x = rechunk(em, x, dims[dim], (dim, before.dims[dim], chunk * table.extent(atoms)))
            return em.dynamic_slice(x, dim, em.scale(em.coordinate(atoms), chunk), chunk)
        case AllToAll():
            return _emit_all_to_all(em, x, dims, step)
        case ReduceScatter(dim, atoms):
            x = rechunk(em, x, dims[dim], (dim, before.dims[dim], _chunk(table, after, dims, dim, atoms)))
            return em.reduce_scatter(x, dim, atoms, _reduction_name(before, moved))
        case AllReduce(atoms):
            return em.all_reduce(x, atoms, _reduction_name(before, moved))
        case MakePartial(atoms, reduction):
            return em.keep_on_first(x, atoms, em.identity(reduction, x.shape.dtype))
        case PadPart(dim, atoms, reduction):
            x = em.pad_around(x, dim, atoms, em.identity(reduction, x.shape.dtype))
            return rechunk(em, x, dims[dim], (dim, after.dims[dim], _chunk(table, after, dims, dim)))
        case Permute():
            return em.permute(x, permutation(table, before, after))


def _reduction_name(layout: AxisLayout, moved: bool) -> str:
    return "bits" if moved and layout.reduction == "sum" else layout.reduction


def _emit_all_to_all(em: Emitter, x: Instruction, dims: tuple[int, ...], step: ReshardStep) -> Instruction:
    """Split target dimensions into (members, chunk), exchange, and merge the members into the source dimensions."""
    assert isinstance(step.move, AllToAll)
    table, before, after, parts = em.table, step.before, step.after, step.move.parts
    targets, sources = _join(step.move, 1), _join(step.move, 0)
    for t, atoms in targets.items():
        x = rechunk(em, x, dims[t], (t, before.dims[t], _chunk(table, after, dims, t, atoms)))
    rank, members = len(dims), [table.extent(atoms) for _, _, atoms in parts]
    chunks = [n // table.extent(targets.get(d, ())) for d, n in enumerate(x.shape.dims)]
    # Axes of the split array: part p is p, what stays of dimension d is len(parts) + d.
    split = [a for d in range(rank) for a in (*(p for p, (_, t, _) in enumerate(parts) if t == d), len(parts) + d)]
    sizes = [*members, *chunks]
    x = em.reshape(x, tuple(sizes[a] for a in split))
    if len(parts) == 1:
        x = em.all_to_all(x, split.index(0), parts[0][2])
    else:
        x = em.transpose(x, tuple(split.index(a) for a in range(len(sizes))))
        x = em.reshape(x, (math.prod(members), *chunks))
        x = em.all_to_all(x, 0, step.move.atoms)
        x, split = em.reshape(x, tuple(sizes)), list(range(len(sizes)))
    merged: list[int] = []
    for d in range(rank):
        own = [p for p, (s, _, _) in enumerate(parts) if s == d]
        merged += [*sorted(own, key=lambda p: before.dims[parts[p][0]].index(parts[p][2][0])), len(parts) + d]
    x = em.transpose(x, tuple(split.index(a) for a in merged))
    x = em.reshape(x, tuple(n * table.extent(sources.get(d, ())) for d, n in enumerate(chunks)))
    for s in sources:
        x = rechunk(em, x, dims[s], (s, after.dims[s], _chunk(table, after, dims, s)))
    return x


def _join(move: AllToAll, end: int) -> dict[int, Atoms]:
    """All atoms that leave each source (``end`` 0) or reach each target (``end`` 1)."""
    out: dict[int, Atoms] = {}
    for source, target, atoms in move.parts:
        dim = target if end else source
        out[dim] = out.get(dim, ()) + atoms
    return out


def _chunk(table: AxisTable, layout: AxisLayout, dims: tuple[int, ...], dim: int, over: Atoms = ()) -> int:
    """The chunk size of a dimension; with ``over``, that of as many neighbouring chunks together."""
    return -(-dims[dim] // table.extent(layout.dims[dim])) * table.extent(over)


def _rechunks(
    table: AxisTable, dims: tuple[int, ...], nbytes: int, change: tuple[AxisLayout, int, list[int], int]
) -> Iterator[MoveCollectives]:
    """What `rechunk` sends to change (layout, dimension, local dimensions, new chunk size), which are then updated."""
    layout, dim, local, new = change
    old, atoms = local[dim], layout.dims[dim]
    if old == new:
        return
    rest = math.prod(local[:dim]) * math.prod(local[dim + 1 :])
    local[dim] = new
    for count, times in sent_elements(dims[dim], table.extent(atoms), old, new):
        yield MoveCollectives("collective-permute", count * rest * nbytes, atoms, times)


def permutation(table: AxisTable, before: AxisLayout, after: AxisLayout) -> AxisPairs:
    """Which device sends its shard to which, over the axes that change their role only."""
    old, new = _change(before, after)
    axes = sorted({*old, *new})
    old += [a for a in axes if a not in old]
    new += [a for a in axes if a not in new]
    sources, targets = (_positions(table, axes, atoms) for atoms in (old, new))
    order = np.argsort(sources)
    return AxisPairs(
        table.mesh, table.axes(axes), tuple(zip(sources[order].tolist(), targets[order].tolist(), strict=True))
    )


def _change(before: AxisLayout, after: AxisLayout) -> tuple[list[int], list[int]]:
    """Atoms at places that differ, dimension after dimension, before and after."""
    old: list[int] = []
    new: list[int] = []
    for a, b in zip(before.dims, after.dims, strict=True):
        head, tail = _common(a, b)
        old += a[head : len(a) - tail]
        new += b[head : len(b) - tail]
    return old, new


def _common(a: Atoms, b: Atoms) -> tuple[int, int]:
    """Lengths of the common prefix and, after it, the common suffix."""
    limit = min(len(a), len(b))
    head = 0
    while head < limit and a[head] == b[head]:
        head += 1
    tail = 0
    while tail < limit - head and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    return head, tail


def _positions(table: AxisTable, axes: list[int], digits: list[int]) -> NDArray[np.int64]:
    """The position over ``axes`` of each device, in the order of the numbers that its digits over ``digits`` spell."""
    grid = np.arange(table.extent(axes)).reshape([table.extents[a] for a in axes])
    return grid.transpose([axes.index(a) for a in digits]).reshape(-1)
