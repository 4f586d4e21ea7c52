"""Stable merge sort of rows, in launches.

Rows that a block can hold are sorted by one launch, some rows per block, in shared memory. Longer ones are sorted in
tiles first; then every launch merges pairs of sorted runs, each block one tile of their result, whose share of both
runs it finds by bisection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llvmlite import ir

from shardc.compiler.elements.control_flow import for_range
from shardc.compiler.elements.loop_space import power_above
from shardc.compiler.elements.sorting import Rows
from shardc.compiler.gpu.function import GpuEmitter, GpuFunction, GpuKernel
from shardc.compiler.gpu.launches import LaunchArray
from shardc.compiler.gpu.sorting.block_merge import ItemTypes, SortTile, load, merge_path, shared_bytes, smaller, store
from shardc.hlo.ir.types import DType
from shardc.native.math.vector import I1, I8, I32, I64, constant

__all__ = ["RowSource", "RowTarget", "SortShape", "cut_rows", "sort_rows", "sort_tiles"]

#: What all GPUs give a block without being asked; 16 bytes of it are for the ends of a merge.
_SHARED_BYTES = (48 << 10) - 16
#: Threads of a block: where rows are short, and at most.
_FEW, _MOST = 128, 512
#: Places for the numbers of passes, in bytes: launches are given places of scratch memory at multiples of this.
_LEVEL = 256


@dataclass(frozen=True, slots=True)
class SortShape:
    """How rows go to blocks: ``items`` consecutive places per thread, ``rows`` rows side by side in a block, each in
    ``tiles`` tiles of ``tile`` places (``rows`` or ``tiles`` is 1)."""

    threads: int
    items: int
    rows: int
    tile: int
    tiles: int

    def blocks(self, total: int) -> int:
        """Blocks for ``total`` rows."""
        return -(-total // self.rows) * self.tiles


def cut_rows(dtypes: Sequence[DType], length: int, total: int, warp: int = 32) -> SortShape | None:
    """The cut of ``total`` rows of ``length`` items; None for items too big for shared memory."""
    nbytes = sum(d.nbytes for d in dtypes)
    items = 8 if nbytes <= 8 else 4 if nbytes <= 16 else 2 if nbytes <= 64 else 1
    threads = _MOST
    while shared_bytes(dtypes, threads * items) > _SHARED_BYTES:
        threads //= 2
        if threads < warp:
            return None
    needed = power_above(-(-length // items))
    if needed > threads:
        return SortShape(threads, items, 1, threads * items, -(-length // (threads * items)))
    rows = max(warp // needed, min(_FEW, threads) // needed, 1)
    return SortShape(needed * rows, items, rows, needed * items, 1)


@dataclass(frozen=True, slots=True)
class RowSource:
    """An array per part of an item, in ``rows``; None stands for the position in the row."""

    rows: Rows
    arrays: Sequence[LaunchArray | None]


@dataclass(frozen=True, slots=True)
class RowTarget:
    """An array per part of an item (the last parts may have none), in ``rows``, which may be shorter than what is
    sorted. ``gathered`` are pairs of arrays of such rows: the second gets the elements of the first whose position is
    the last part. Of each tile only the first ``keep`` items are written (0: all), one tile's behind the other's."""

    rows: Rows
    arrays: Sequence[LaunchArray]
    gathered: Sequence[tuple[LaunchArray, LaunchArray, DType]] = ()
    keep: int = 0

    def all_arrays(self) -> list[LaunchArray]:
        return [*self.arrays, *(a for pair in self.gathered for a in pair[:2])]


def sort_rows(
    kernel: GpuKernel, types: ItemTypes, source: RowSource, target: RowTarget, total: int, cut: SortShape
) -> None:
    """Sort ``total`` rows of ``source`` into ``target``."""
    if cut.tiles == 1:
        sort_tiles(kernel, types, source, target, total, cut)
        return
    length = source.rows.length
    dense = Rows((total, length), 1)
    passes = (cut.tiles - 1).bit_length()
    near = [kernel.scratch(d.nbytes * total * length) for d in types.dtypes]
    direct = target.rows.stride == 1 and target.rows.length == length and len(target.arrays) == len(types.dtypes)
    if passes == 1 or direct:
        far = list(target.arrays)
    else:
        far = [kernel.scratch(d.nbytes * total * length) for d in types.dtypes]
    # The last pass reads ``near``; the others take turns.
    held, other = (near, far) if passes % 2 else (far, near)
    first = kernel.scratch(_LEVEL * passes)
    levels = [LaunchArray("scratch", first.index + _LEVEL * n) for n in range(passes)]
    sort_tiles(kernel, types, source, RowTarget(dense, held), total, cut, levels)
    merge: GpuFunction | None = None
    for level in levels:
        if level is levels[-1] and not direct:
            _launch_merge(kernel, types, RowSource(dense, held), target, total, cut, level)
        elif merge is None:
            merge = _launch_merge(kernel, types, RowSource(dense, held), RowTarget(dense, other), total, cut, level)
        else:
            kernel.launch(merge, (cut.blocks(total),), _shared(types, cut, 16), [*held, *other, level])
        held, other = other, held


def _shared(types: ItemTypes, cut: SortShape, more: int = 0) -> int:
    return shared_bytes(types.dtypes, cut.threads * cut.items) + more


class _SortBlock:
    """A block of a launch, each thread of which has ``items`` consecutive places of the block's tile; ``start`` is
    where the tile begins in its row."""

    def __init__(
        self,
        kernel: GpuKernel,
        types: ItemTypes,
        arrays: Sequence[LaunchArray],
        total: int,
        length: int,
        cut: SortShape,
    ) -> None:
        self.types, self.total, self.length, self.cut = types, total, length, cut
        self.function = kernel.function(list(dict.fromkeys(arrays)), cut.threads)
        self.e: GpuEmitter = self.function.emitter({})
        self.b: ir.IRBuilder = self.e.entry.builder
        b, code = self.b, self.e.code
        self.tile = SortTile(self.e, types, cut.threads, cut.items)
        self.thread, self.block = code.thread(b), code.block(b)
        self.tile_number = b.urem(self.block, constant(I32, cut.tiles))
        self.row = b.mul(b.udiv(self.block, constant(I32, cut.tiles)), constant(I32, cut.rows))
        self.start = b.mul(self.tile_number, constant(I32, cut.tile))
        self.first = b.mul(self.thread, constant(I32, cut.items))

    def slots(self, across: bool) -> Iterator[tuple[ir.Value, ir.Value, ir.Value]]:
        """The places that this thread copies: place, row, place in the row; neighbours in a row, or ``across`` rows."""
        b, cut = self.b, self.cut
        for n in range(cut.items):
            number = b.add(self.thread, constant(I32, n * cut.threads))
            if across:
                row, k = b.urem(number, constant(I32, cut.rows)), b.udiv(number, constant(I32, cut.rows))
                yield b.add(b.mul(row, constant(I32, cut.tile)), k), b.add(self.row, row), k
            else:
                row, k = b.udiv(number, constant(I32, cut.tile)), b.urem(number, constant(I32, cut.tile))
                yield number, b.add(self.row, row), k

    def at(self, rows: Rows, row: ir.Value, position: ir.Value, there: ir.Value) -> ir.Value:
        """Where an element lies; 0 for those that are not there."""
        b = self.b
        number, stride = b.zext(row, I64), constant(I64, rows.stride)
        base = rows.base(b, b.udiv(number, stride), b.urem(number, stride))
        return b.select(there, rows.at(b, base, b.zext(position, I64)), constant(I64, 0))

    def exists(self, row: ir.Value) -> ir.Value:
        return self.b.icmp_unsigned("<", row, constant(I32, self.total))

    def write(self, target: RowTarget, count: ir.Value) -> None:
        """The sorted tile, ``count`` items per row, goes to memory; all that is gathered is asked for before."""
        b, rows = self.b, target.rows
        keep = target.keep or self.cut.tile
        begin = b.mul(self.tile_number, constant(I32, keep))
        kept = smaller(b, count, constant(I32, keep))
        found = []
        for slot, row, k in self.slots(across=rows.stride > 1):
            position = b.add(begin, k)
            inside = b.icmp_signed("<", position, constant(I32, rows.length))
            there = b.and_(b.and_(b.icmp_signed("<", k, kept), inside), self.exists(row))
            found.append((there, self.at(rows, row, position, there), self._values(target, slot, row, there)))
        for there, at, values in found:
            with b.if_then(there):
                for array, dtype, value in values:
                    store(b, value, self.function.pointer(array), at, dtype)

    def _values(
        self, target: RowTarget, slot: ir.Value, row: ir.Value, there: ir.Value
    ) -> list[tuple[LaunchArray, DType, tuple[ir.Value, ...]]]:
        """What is to be written of the item in ``slot``, by array."""
        b, dtypes = self.b, self.types.dtypes
        item = self.tile.read(slot)
        values = list(zip(target.arrays, dtypes, item, strict=False))
        if target.gathered:
            source = self.at(target.rows, row, item[-1][0], there)
            for operand, result, dtype in target.gathered:
                values.append((result, dtype, load(b, self.function.pointer(operand), source, dtype)))
        return values

    def number(self, place: ir.Value, count: int) -> None:
        """The first block writes the numbers below ``count`` to their places."""
        b = self.b
        index = b.add(b.mul(self.block, constant(I32, self.cut.threads)), self.thread)
        with b.if_then(b.icmp_unsigned("<", index, constant(I32, count))):
            at = b.mul(index, constant(I32, _LEVEL))
            b.store(b.trunc(index, I8), b.gep(place, [at], source_etype=I8), align=1)

    def launch(self, kernel: GpuKernel, more: int = 0) -> GpuFunction:
        self.e.finish()
        kernel.launch(self.function, (self.cut.blocks(self.total),), _shared(self.types, self.cut, more))
        return self.function


def sort_tiles(
    kernel: GpuKernel,
    types: ItemTypes,
    source: RowSource,
    target: RowTarget,
    total: int,
    cut: SortShape,
    levels: Sequence[LaunchArray] = (),
) -> None:
    """A launch that sorts every tile of every row; and numbers the passes that follow, in ``levels``."""
    arrays = [a for a in source.arrays if a is not None] + target.all_arrays() + list(levels[:1])
    length = source.rows.length
    block = _SortBlock(kernel, types, arrays, total, length, cut)
    b, tile = block.b, block.tile
    found = []
    for slot, row, k in block.slots(across=source.rows.stride > 1):
        position = b.add(block.start, k)
        there = b.and_(b.icmp_signed("<", position, constant(I32, length)), block.exists(row))
        at = block.at(source.rows, row, position, there)
        places = [None if a is None else block.function.pointer(a) for a in source.arrays]
        pairs = zip(places, types.dtypes, strict=True)
        found.append((slot, [(position,) if p is None else load(b, p, at, d) for p, d in pairs]))
    for slot, item in found:
        tile.write(slot, item)
    block.e.code.barrier(b)
    count = smaller(b, constant(I32, cut.tile), b.sub(constant(I32, length), block.start))
    own = b.urem(block.first, constant(I32, cut.tile))
    tile.sort_own(block.first, b.sub(count, own))
    block.e.code.barrier(b)
    _merge_tile(block, own, count)
    block.write(target, count)
    if levels:
        block.number(block.function.pointer(levels[0]), len(levels))
    block.launch(kernel)


def _merge_tile(block: _SortBlock, own: ir.Value, count: ir.Value) -> None:
    """Merge the threads' runs to one per row; ``own`` is where the thread's places begin in their row."""
    b, items = block.b, block.cut.items
    base = b.sub(block.first, own)
    with for_range(b, 0, (block.cut.tile // items).bit_length() - 1) as level:
        width = b.shl(constant(I32, items), b.trunc(level, I32))
        pair = b.and_(own, b.sub(constant(I32, 0), b.shl(width, constant(I32, 1))))
        begin = smaller(b, pair, count)
        middle = smaller(b, b.add(pair, width), count)
        end = smaller(b, b.add(pair, b.shl(width, constant(I32, 1))), count)
        diagonal = smaller(b, b.sub(own, pair), b.sub(end, begin))
        block.tile.merge(b.add(base, begin), b.add(base, middle), b.add(base, end), diagonal, block.first)
        block.e.code.barrier(b)


def _launch_merge(
    kernel: GpuKernel,
    types: ItemTypes,
    source: RowSource,
    target: RowTarget,
    total: int,
    cut: SortShape,
    level: LaunchArray,
) -> GpuFunction:
    """A launch that merges pairs of runs of ``tile << level`` items, each block one tile of the result."""
    held = [a for a in source.arrays if a is not None]
    length = source.rows.length
    block = _SortBlock(kernel, types, [*held, *target.all_arrays(), level], total, length, cut)
    b = block.b
    width = b.shl(constant(I32, cut.tile), b.zext(b.load(block.function.pointer(level), typ=I8), I32))
    group = b.and_(block.start, b.sub(constant(I32, 0), b.shl(width, constant(I32, 1))))
    rest = b.sub(constant(I32, length), group)
    left = smaller(b, rest, width)
    right = smaller(b, b.sub(rest, left), width)
    begin = b.sub(block.start, group)
    end = smaller(b, b.add(begin, constant(I32, cut.tile)), b.add(left, right))
    places = [block.function.pointer(a) for a in held]
    from_left, past_left = _share(block, places, source.rows, group, (left, right), (begin, end))
    lefts, count = b.sub(past_left, from_left), b.sub(end, begin)
    from_right = b.sub(b.add(b.add(group, left), b.sub(begin, from_left)), lefts)
    found = []
    for slot, row, _ in block.slots(across=False):
        side = b.select(b.icmp_signed("<", slot, lefts), b.add(group, from_left), from_right)
        at = block.at(source.rows, row, b.add(side, slot), b.icmp_signed("<", slot, count))
        found.append((slot, types.load(b, places, at)))
    for slot, item in found:
        block.tile.write(slot, item)
    block.e.code.barrier(b)
    diagonal = smaller(b, block.first, count)
    block.tile.merge(constant(I32, 0), lefts, count, diagonal, block.first)
    block.e.code.barrier(b)
    block.write(target, count)
    return block.launch(kernel, 16)


def _share(
    block: _SortBlock,
    places: Sequence[ir.Value],
    rows: Rows,
    group: ir.Value,
    lengths: tuple[ir.Value, ir.Value],
    ends: tuple[ir.Value, ir.Value],
) -> tuple[ir.Value, ir.Value]:
    """How many items of the left run lie before the block's part of the merged ones, and before its end: two threads
    look for one of them each."""
    b, types, code = block.b, block.types, block.e.code
    left, right = lengths
    always = constant(I1, 1)

    def item(position: ir.Value) -> list[tuple[ir.Value, ...]]:
        return types.load(b, places, block.at(rows, block.row, position, always))

    def right_first(i: ir.Value, j: ir.Value) -> ir.Value:
        return types.before(block.e, item(b.add(b.add(group, left), j)), item(b.add(group, i)))

    found = [code.shared(b, _shared(types, block.cut, 4 * n)) for n in range(2)]
    mine = code.shared(b, _shared(types, block.cut))
    with b.if_then(b.icmp_unsigned("<", block.thread, constant(I32, 2))):
        diagonal = b.select(b.icmp_unsigned("==", block.thread, constant(I32, 0)), *ends)
        taken = merge_path(b, left, right, diagonal, right_first)
        b.store(taken, b.gep(mine, [block.thread], source_etype=I32), align=4)
    code.barrier(b)
    return b.load(found[0], typ=I32, align=4), b.load(found[1], typ=I32, align=4)
