"""Maps that read along another direction than they write: through tiles of shared memory.

A block reads a tile with its threads along the reads, waits, and then computes elements with its threads along the
writes. Rows of a tile are a bank apart, so that neither way do threads meet in one bank. Whatever else an element needs
is read as in any other map.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from shardc.compiler.elements import memory
from shardc.compiler.elements.affine import Expr, LoopVar
from shardc.compiler.elements.elements import Access
from shardc.compiler.elements.frames import ForLoop, Frame, IfBlock, Val
from shardc.compiler.elements.loop_space import group_size, power_above, reads_across
from shardc.compiler.gpu.maps.maps import PlannedMap, big_accesses, extend_number, split_number, traffic
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import DType
from shardc.native.math.vector import I64, constant

__all__ = ["TransposedMap"]

_THREADS = 256
#: Bytes of a tile, and its least and usual side in elements.
_TILE_BYTES, _LEAST, _SIDE = 16 << 10, 8, 64
#: Bytes of a bank of shared memory.
_BANK = 4
#: Elements of a thread that are computed together; fewer where that is many operations.
_TOGETHER, _MANY = 4, 24


class TransposedMap:
    """A map in tiles of ``height`` steps along the group ``across`` by ``width`` along the innermost one."""

    @staticmethod
    def across(plan: PlannedMap) -> int | None:
        """The number of the group along which most bytes are read contiguously that are strided along the innermost
        one; None where a plain map does."""
        if not plan.plain or len(plan.groups) < 2 or group_size(plan.groups[-1]) < _LEAST:
            return None
        lane = plan.groups[-1][-1]
        best, found = 0, None
        for number, group in enumerate(plan.groups[:-1]):
            if group_size(group) < 2:
                continue
            nbytes = sum(traffic(a) for a in big_accesses(plan.accesses) if _suits(plan, a, group[-1], lane))
            if nbytes > best:
                best, found = nbytes, number
        return found

    def __init__(self, plan: PlannedMap, across: int) -> None:
        self.plan = plan
        groups = list(plan.groups)
        self.tall = groups.pop(across)
        self.wide = groups.pop()
        self.outer = groups
        found = [a for a in plan.recorder.accesses if _suits(plan, a, self.tall[-1], self.wide[-1])]
        self.taken = list({(a.leaf, a.offset): a for a in found}.values())
        self.height, self.width = self._sides()
        #: Where the tile of each access begins in shared memory, and bytes of all.
        self.begins: list[int] = []
        self.shared_bytes = 0
        for a in self.taken:
            self.begins.append(self.shared_bytes)
            nbytes = self.width * self.pitch(a.shape.dtype) * a.shape.dtype.nbytes
            self.shared_bytes += -(-nbytes // 16) * 16

    def _sides(self) -> tuple[int, int]:
        """Powers of two, whose product is a multiple of the threads."""
        elements = _TILE_BYTES // sum(a.shape.dtype.nbytes for a in self.taken)
        elements = max(_THREADS, 1 << (elements.bit_length() - 1))
        side = _SIDE
        while side * side > elements:
            side //= 2
        side = max(side, 16)
        high = min(side, power_above(group_size(self.tall)))
        across = min(power_above(group_size(self.wide)), max(side, _THREADS // high), elements // high)
        high = max(high, _THREADS // across)
        return high, across

    def pitch(self, dtype: DType) -> int:
        """Elements from a row of the tile to the next."""
        return self.height + max(1, _BANK // dtype.nbytes)

    def emit(self) -> None:
        """Define the function and launch it."""
        e = self.plan.begin(_THREADS)
        b = e.entry.builder
        sizes = (group_size(self.tall), group_size(self.wide))
        tiles = (-(-sizes[0] // self.height), -(-sizes[1] // self.width))
        blocks = tiles[0] * tiles[1] * group_size([v for g in self.outer for v in g])
        number = extend_number(e, e.code.block(b), blocks)
        self.thread = extend_number(e, e.code.thread(b), _THREADS)
        number, down = split_number(b, number, blocks, tiles[0])
        number, right = split_number(b, number, blocks // tiles[0], tiles[1])
        total = blocks // (tiles[0] * tiles[1])
        for group in reversed(self.outer):
            number, at = split_number(b, number, total, group_size(group))
            total //= group_size(group)
            self.plan.bind(group, Val((at,), e.entry))
        self.first = (b.mul(down, constant(I64, self.height)), b.mul(right, constant(I64, self.width)))
        self._fill(e.entry, sizes)
        e.code.barrier(e.entry.builder)
        self._use(e.entry, sizes, tiles)
        self.plan.finish(blocks, self.shared_bytes)

    def _fill(self, frame: Frame, sizes: tuple[int, int]) -> None:
        """Read the tiles, threads along the reads; what lies outside reads the first element."""
        e = self.plan.e
        units: list[tuple[ir.Value, ir.Value, Access]] = []
        for step in range(self.height * self.width // _THREADS):
            b = frame.builder
            across, lane = self._place(b, step, self.height)[::-1]
            at = (b.add(self.first[0], across), b.add(self.first[1], lane))
            self.plan.bind(self.tall, Val((at[0],), frame))
            self.plan.bind(self.wide, Val((at[1],), frame))
            inside = self._inside(b, at, sizes)
            for a, begin in zip(self.taken, self.begins, strict=True):
                offset = e.split(a.offset)[0].value
                if inside is not None:
                    offset = b.select(inside, offset, constant(I64, 0))
                assert isinstance(a.leaf, Instruction)
                value = _load(b, e.pointers[a.leaf], offset, a.shape.dtype)
                pitch = self.pitch(a.shape.dtype)
                place = b.add(b.mul(lane, constant(I64, pitch)), across)
                units.append((value, _at(b, e.code.shared(b, begin), place, a.shape.dtype), a))
        for value, place, a in units:
            frame.builder.store(value, place, align=min(a.shape.dtype.nbytes, 8))

    def _place(self, b: ir.IRBuilder, step: int | ir.Value, side: int) -> tuple[ir.Value, ir.Value]:
        """This thread's element number ``step`` of a tile: (which row, where in a row of ``side``)."""
        past = constant(I64, step * _THREADS) if isinstance(step, int) else b.mul(step, constant(I64, _THREADS))
        return split_number(b, b.add(self.thread, past), self.height * self.width, side)

    def _inside(self, b: ir.IRBuilder, at: tuple[ir.Value, ir.Value], sizes: tuple[int, int]) -> ir.Value | None:
        """Whether an element is inside the array. None where all are."""
        found = None
        for x, n, side in zip(at, sizes, (self.height, self.width), strict=True):
            if n % side:
                test = b.icmp_unsigned("<", x, constant(I64, n))
                found = test if found is None else b.and_(found, test)
        return found

    def _use(self, frame: Frame, sizes: tuple[int, int], tiles: tuple[int, int]) -> None:
        """Compute and write the elements: several together in whole tiles, one by one in others."""
        count = self.height * self.width // _THREADS
        together = min(count, _TOGETHER if self.plan.recorder.operations <= _MANY else 1)
        full: ir.Value | None = None
        b = frame.builder
        for first, n, side in zip(self.first, sizes, (self.height, self.width), strict=True):
            if n % side:
                test = b.icmp_unsigned("<", first, constant(I64, n // side * side))
                full = test if full is None else b.and_(full, test)
        if full is None:
            self._elements(frame, count, together)
            return
        if sizes[0] >= self.height and sizes[1] >= self.width:
            whole = IfBlock(frame, full)
            self._elements(whole.frame, count, together)
            whole.close()
        rest = IfBlock(frame, frame.builder.not_(full))
        loop = ForLoop(rest.frame, count)
        across, lane = self._place(loop.frame.builder, loop.index, self.width)
        at = (loop.frame.builder.add(self.first[0], across), loop.frame.builder.add(self.first[1], lane))
        inside = self._inside(loop.frame.builder, at, sizes)
        assert inside is not None
        element = IfBlock(loop.frame, inside)
        self._compute(element.frame, [loop.index])
        element.close()
        loop.close()
        rest.close()

    def _elements(self, frame: Frame, count: int, together: int) -> None:
        loop = ForLoop(frame, count, together)
        steps = [loop.frame.builder.add(loop.index, constant(I64, n)) if n else loop.index for n in range(together)]
        self._compute(loop.frame, steps)
        loop.close()

    def _compute(self, frame: Frame, steps: list[ir.Value]) -> None:
        e, b = self.plan.e, frame.builder
        found = []
        for step in steps:
            across, lane = self._place(b, step, self.width)
            self.plan.bind(self.tall, Val((b.add(self.first[0], across),), frame))
            self.plan.bind(self.wide, Val((b.add(self.first[1], lane),), frame))
            e.tile = SharedTile(self, frame, across, lane)
            found.append(self.plan.evaluate(frame))
        e.tile = None
        for values in found:
            self.plan.store(values)

    def tile_of(self, leaf: Instruction, offset: Expr) -> int | None:
        """Where the tile of an access begins; None for others."""
        for a, begin in zip(self.taken, self.begins, strict=True):
            if a.leaf is leaf and a.offset == offset:
                return begin
        return None


@dataclass(frozen=True)
class SharedTile:
    """Answers reads at one place of the tiles."""

    owner: TransposedMap
    frame: Frame
    across: ir.Value
    lane: ir.Value

    def value(self, leaf: Instruction, offset: Expr, dtype: DType) -> Val | None:
        begin = self.owner.tile_of(leaf, offset)
        if begin is None:
            return None
        b = self.frame.builder
        place = b.add(b.mul(self.lane, constant(I64, self.owner.pitch(dtype))), self.across)
        return Val(memory.load(b, self.owner.plan.e.code.shared(b, begin), place, dtype, 1), self.frame)


def _suits(plan: PlannedMap, a: Access, across: LoopVar, lane: LoopVar) -> bool:
    """A read of an operand that a tile can serve."""
    low, high = a.offset.range
    inside = low >= 0 and high <= a.shape.size
    return a.leaf in plan.leaves and inside and reads_across(a.offset, across, lane)


def _unit(dtype: DType) -> tuple[ir.Type, int]:
    """An element as it is moved: integers of 8 bytes at most, and how many."""
    unit = ir.IntType(8 * min(dtype.nbytes, 8))
    return (unit, 1) if dtype.nbytes <= 8 else (ir.VectorType(unit, dtype.nbytes // 8), dtype.nbytes // 8)


def _at(b: ir.IRBuilder, base: ir.Value, offset: ir.Value, dtype: DType) -> ir.Value:
    return b.gep(base, [offset], source_etype=_unit(dtype)[0])


def _load(b: ir.IRBuilder, base: ir.Value, offset: ir.Value, dtype: DType) -> ir.Value:
    return b.load(_at(b, base, offset, dtype), typ=_unit(dtype)[0], align=min(dtype.nbytes, 8))
