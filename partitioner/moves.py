"""The moves a reshard is made of: what each costs and which instructions it becomes.

A dimension of n elements over k devices lies in chunks of ceil(n / k). Where a move would leave another chunk
size (uneven sizes), `_rechunk` puts it right: by a local pad or slice when the dimension is whole on every device,
otherwise by permutes between neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from shardc.hlo.groups import AxisPairs
from shardc.hlo.ir import Instruction
from shardc.partitioner.emitter import Emitter
from shardc.partitioner.layout import Atoms, AxisTable, Layout

__all__ = [
    "AllReduce",
    "AllToAll",
    "Cost",
    "Gather",
    "Move",
    "Partial",
    "Permute",
    "ReduceScatter",
    "Slice",
    "Step",
    "Transfer",
    "emit_move",
    "move_cost",
    "transfers",
]

#: Bytes that one device sends, and number of collectives.
Cost = tuple[float, int]


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
    """Move the minor-most ``atoms`` of dimension ``source`` to the minor end of dimension ``target``."""

    source: int
    target: int
    atoms: Atoms


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
class Partial:
    """Make a whole value partial over ``atoms``: the first member keeps it, the others hold the identity."""

    atoms: Atoms
    reduction: str


@dataclass(frozen=True, slots=True)
class Permute:
    """Send whole shards to other devices: same shard sizes, other axes."""


Move = Gather | Slice | AllToAll | ReduceScatter | AllReduce | Partial | Permute


@dataclass(frozen=True, slots=True)
class Step:
    """One move with the layouts before and after it."""

    before: Layout
    move: Move
    after: Layout


@dataclass(frozen=True, slots=True)
class Transfer:
    """``times`` collectives over ``atoms``, each with a local result of ``nbytes``."""

    opcode: str
    nbytes: int
    atoms: Atoms
    times: int = 1


def move_cost(table: AxisTable, dims: tuple[int, ...], nbytes: int, step: Step) -> Cost:
    """Bytes per device and number of collectives of one move of an array of ``dims``, re-chunking included."""
    wire, count = 0.0, 0
    for t in transfers(table, dims, nbytes, step):
        wire += t.times * sent(t.opcode, t.nbytes, table.extent(t.atoms))
        count += t.times
    return (wire, count)


def sent(opcode: str, nbytes: float, g: int) -> float:
    """Bytes that one of ``g`` members sends when its result has ``nbytes``, under a bandwidth-optimal algorithm."""
    if opcode == "all-reduce":
        return 2 * nbytes * (g - 1) / g
    if opcode in ("all-gather", "all-to-all"):
        return nbytes * (g - 1) / g
    return float(nbytes * (g - 1)) if opcode == "reduce-scatter" else float(nbytes)


def transfers(table: AxisTable, dims: tuple[int, ...], nbytes: int, step: Step) -> Iterator[Transfer]:
    """The collectives of one move of an array of ``dims`` with elements of ``nbytes``, re-chunking included."""
    before, after = step.before, step.after
    local = nbytes * math.prod(table.local_dims(before, dims))
    match step.move:
        case Gather(dim, atoms):
            g = table.extent(atoms)
            yield Transfer("all-gather", local * g, atoms)
            yield from _rechunks(table, dims, nbytes, (after, dim, _chunk(table, before, dims, dim) * g))
        case Slice(dim, atoms):
            yield from _rechunks(table, dims, nbytes, (before, dim, _chunk(table, after, dims, dim, atoms)))
        case AllToAll(source, target, atoms):
            g = table.extent(atoms)
            yield from _rechunks(table, dims, nbytes, (before, target, _chunk(table, after, dims, target, atoms)))
            moved = math.prod(_chunk(table, before if d == source else after, dims, d) for d in range(len(dims)))
            yield Transfer("all-to-all", moved * nbytes * g, atoms)
            yield from _rechunks(table, dims, nbytes, (after, source, _chunk(table, before, dims, source) * g))
        case ReduceScatter(dim, atoms):
            yield from _rechunks(table, dims, nbytes, (before, dim, _chunk(table, after, dims, dim, atoms)))
            yield Transfer("reduce-scatter", nbytes * math.prod(table.local_dims(after, dims)), atoms)
        case AllReduce(atoms):
            yield Transfer("all-reduce", local, atoms)
        case Permute():
            changed = (set(a) ^ set(b) for a, b in zip(before.dims, after.dims, strict=True))
            yield Transfer(
                "collective-permute", local, tuple(sorted(set().union(*changed))) or tuple(sorted(after.used))
            )


def emit_move(em: Emitter, x: Instruction, dims: tuple[int, ...], step: Step) -> Instruction:
    """Instructions that take the local value ``x`` of a global array of ``dims`` one step further."""
    table, before, after = em.table, step.before, step.after
    match step.move:
        case Gather(dim, atoms):
            x = em.all_gather(x, dim, atoms)
            return _rechunk(em, x, dims[dim], (dim, after.dims[dim], _chunk(table, after, dims, dim)))
        case Slice(dim, atoms):
            chunk = _chunk(table, after, dims, dim)
            x = _rechunk(em, x, dims[dim], (dim, before.dims[dim], chunk * table.extent(atoms)))
            return em.dynamic_slice(x, dim, em.scaled(em.coordinate(atoms), chunk), chunk)
        case AllToAll():
            return _emit_all_to_all(em, x, dims, step)
        case ReduceScatter(dim, atoms):
            x = _rechunk(em, x, dims[dim], (dim, before.dims[dim], _chunk(table, after, dims, dim, atoms)))
            return em.reduce_scatter(x, dim, atoms, before.reduction)
        case AllReduce(atoms):
            return em.all_reduce(x, atoms, before.reduction)
        case Partial(atoms, reduction):
            return em.keep_on_first(x, atoms, em.identity(reduction, x.shape.dtype))
        case Permute():
            return em.permute(x, permutation(table, before, after))


def _emit_all_to_all(em: Emitter, x: Instruction, dims: tuple[int, ...], step: Step) -> Instruction:
    """Split the target dimension into (members, chunk), exchange, and merge the members into the source dimension."""
    assert isinstance(step.move, AllToAll)
    table, source, target, atoms = em.table, step.move.source, step.move.target, step.move.atoms
    before, after = step.before, step.after
    g = table.extent(atoms)
    chunk = _chunk(table, after, dims, target)
    x = _rechunk(em, x, dims[target], (target, before.dims[target], chunk * g))
    local = x.shape.dims
    x = em.reshape(x, (*local[:target], g, chunk, *local[target + 1 :]))
    x = em.all_to_all(x, target, atoms)
    order = [d + (d >= target) for d in range(len(local))]
    order.insert(source, target)
    x = em.transpose(x, tuple(order))
    merged = tuple(chunk if d == target else n * g if d == source else n for d, n in enumerate(local))
    x = em.reshape(x, merged)
    return _rechunk(em, x, dims[source], (source, after.dims[source], _chunk(table, after, dims, source)))


def _chunk(table: AxisTable, layout: Layout, dims: tuple[int, ...], dim: int, over: Atoms = ()) -> int:
    """The chunk size of a dimension; with ``over``, that of as many neighbouring chunks together."""
    return -(-dims[dim] // table.extent(layout.dims[dim])) * table.extent(over)


def _rechunks(
    table: AxisTable, dims: tuple[int, ...], nbytes: int, change: tuple[Layout, int, int]
) -> Iterator[Transfer]:
    """What `_rechunk` sends for (layout, dimension, other chunk size), from or to the layout's own chunk size."""
    layout, dim, other = change
    own = _chunk(table, layout, dims, dim)
    k = table.extent(layout.dims[dim])
    if own == other or k == 1:
        return
    rest = math.prod(_chunk(table, layout, dims, d) for d in range(len(dims)) if d != dim)
    low, high = neighbours(dims[dim], k, *((other, own) if other > own else (own, other)))
    if high > low:
        yield Transfer("collective-permute", max(own, other) * rest * nbytes, layout.dims[dim], high - low)


@lru_cache(maxsize=4096)
def neighbours(n: int, k: int, old: int, new: int) -> tuple[int, int]:
    """Device i of k needs old chunks i + low .. i + high for its new chunk of a dimension of n; low <= 0 <= high."""
    low = high = 0
    for i in range(k):
        start, end = i * new, min((i + 1) * new, n)
        if start < end:
            low = min(low, start // old - i)
            high = max(high, (end - 1) // old - i)
    return low, high


def _rechunk(em: Emitter, x: Instruction, n: int, change: tuple[int, Atoms, int]) -> Instruction:
    """Change (dimension, its atoms, new chunk size) of a dimension with n elements."""
    dim, atoms, new = change
    old = x.shape.dims[dim]
    if old == new:
        return x
    k = em.table.extent(atoms)
    if k == 1:
        return em.resize(x, dim, new)
    low, high = neighbours(n, k, old, new)
    group = em.table.axes(atoms)
    parts: list[Instruction] = []
    for distance in range(low, high + 1):
        pairs = tuple((i + distance, i) for i in range(k) if 0 <= i + distance < k)
        parts.append(em.permute(x, AxisPairs(em.table.mesh, group, pairs)) if distance else x)
    window = em.concatenate(parts, dim)
    # Device i's new chunk starts at i * new; the window starts at (i + low) * old.
    last = max(i * (new - old) - low * old for i in range(k) if i * new < n)
    window = em.resize(window, dim, max(window.shape.dims[dim], last + new))
    start = em.scaled(em.coordinate(atoms), new - old)
    return em.dynamic_slice(window, dim, em.plus(start, -low * old), new)


def permutation(table: AxisTable, before: Layout, after: Layout) -> AxisPairs:
    """Which device sends its shard to which, over the axes that change their role only."""
    old: list[int] = []
    new: list[int] = []
    for a, b in zip(before.dims, after.dims, strict=True):
        head, tail = _common(a, b)
        old += a[head : len(a) - tail]
        new += b[head : len(b) - tail]
    axes = sorted(set(old) | set(new))
    old += [a for a in axes if a not in old]
    new += [a for a in axes if a not in new]
    pairs = []
    for shard in range(table.extent(axes)):
        source, target = (_position(table, axes, atoms, shard) for atoms in (old, new))
        pairs.append((source, target))
    return AxisPairs(table.mesh, table.axes(axes), tuple(sorted(pairs)))


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


def _position(table: AxisTable, axes: list[int], digits: list[int], number: int) -> int:
    """The position over ``axes`` of the device whose digits over the atoms ``digits`` spell ``number``."""
    value: dict[int, int] = {}
    for a in reversed(digits):
        number, value[a] = divmod(number, table.extents[a])
    position = 0
    for a in axes:
        position = position * table.extents[a] + value[a]
    return position
