"""How a block brings the tiles of a product's operands to shared memory.

Every thread takes a few short runs of neighbours of a tile, so that neighbouring threads read neighbouring memory.
Runs go through registers, where they are converted or computed, and the next tile's are under way while the current
one is multiplied; or, where they are copied as they are, past the registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from llvmlite import ir

from shardc.compiler.elements.affine import Expr, InRange, LoopVar, condition, linear
from shardc.compiler.elements.arithmetic.registers import encode, memory_type, part_count
from shardc.compiler.elements.elements import Index
from shardc.compiler.elements.folds import convert_element
from shardc.compiler.elements.frames import ForLoop, Frame, Val
from shardc.compiler.gpu.function import GpuEmitter
from shardc.compiler.gpu.products.problem import ProductOperand
from shardc.hlo.ir.types import DType
from shardc.native.math.vector import I8, I32, I64, constant

__all__ = ["LoadedSide", "Loader", "StagedTile", "loader", "slots", "stage_tile"]

#: The widest access of a thread, in bytes.
_WIDEST = 16
_ASYNC_BYTES = (4, 8, 16)
#: Most runs that a thread holds.
_HELD = 8


@dataclass(frozen=True, slots=True)
class StagedTile:
    """Tiles of (free, depth) elements of ``dtype`` in shared memory from byte ``offset`` on, ``nbytes`` each.

    Rows of depth lie together (``by_depth``), or those of the free dimension; ``pitch`` elements apart. The parts of
    complex numbers lie in planes of their own.
    """

    dtype: DType
    offset: int
    by_depth: bool
    free: int
    depth: int
    pitch: int

    @property
    def size(self) -> int:
        """Bytes of an element's part."""
        return self.dtype.nbytes // part_count(self.dtype)

    @property
    def plane(self) -> int:
        """Bytes of a plane."""
        return (self.free if self.by_depth else self.depth) * self.pitch * self.size

    @property
    def nbytes(self) -> int:
        return self.plane * part_count(self.dtype)

    def at(self, free: Expr, depth: Expr) -> Expr:
        """Where an element lies in its plane."""
        return free * self.pitch + depth if self.by_depth else depth * self.pitch + free


def stage_tile(dtype: DType, offset: int, by_depth: bool, free: int, depth: int, pad: int) -> StagedTile:
    """Rows in shared memory are ``pad`` elements longer than needed, against conflicts of banks."""
    return StagedTile(dtype, offset, by_depth, free, depth, (depth if by_depth else free) + pad)


@dataclass(frozen=True, slots=True)
class LoadedSide:
    """What a loader brings: tiles from row (or column) ``first`` of ``size``, from depth ``start`` of ``depth``."""

    operand: ProductOperand
    batch: Index
    first: Expr
    size: int
    start: Expr
    depth: int


def slots(e: GpuEmitter, thread: ir.Value, threads: int, across: int, down: int) -> list[tuple[Expr, Expr]]:
    """The positions (across, down) of a thread when all ``threads`` count them along ``across`` first.

    All numbers are powers of two, and there is at least one position per thread.
    """
    b = e.entry.builder

    def bound(size: int, value: ir.Value) -> Expr:
        v = e.source.loop(size)
        if size > 1:
            e.bind(v, Val((value,), e.entry))
        return Expr.of(v)

    if across <= threads:
        group = bound(across, b.and_(thread, constant(I64, across - 1)))
        row = bound(threads // across, b.lshr(thread, constant(I64, across.bit_length() - 1)))
        return [(group, row + n * (threads // across)) for n in range(across * down // threads)]
    group, turns = bound(threads, thread), across // threads
    return [(group + n % turns * threads, Expr(n // turns)) for n in range(turns * down)]


class Loader(Protocol):
    """``begin`` starts to bring the tile that the loop variables name now to ``stage``, ``end`` finishes; both in
    ``frame``. What it brought is there for all threads after a barrier, and `GridCode.await_copies` if ``copies``."""

    copies: bool

    def begin(self, frame: Frame, stage: ir.Value) -> None: ...
    def end(self, frame: Frame, stage: ir.Value) -> None: ...


def loader(e: GpuEmitter, side: LoadedSide, place: StagedTile, thread: ir.Value, threads: int) -> Loader:
    """The way for a side: a copy where nothing is to be changed and the tile lies as the operand does."""
    operand = side.operand
    dtype = operand.value.shape.dtype
    most = _WIDEST // max(dtype.nbytes, place.dtype.nbytes)
    run = max(1, min(operand.run, most, place.free * place.depth // threads))
    as_is = operand.value in e.leaves and dtype is place.dtype and not dtype.is_complex
    same_way = operand.along_depth == place.by_depth or run == 1
    base = _LoadRuns(e, side, place, thread, threads, run)
    if as_is and same_way and run * dtype.nbytes in _ASYNC_BYTES:
        return _Copies(base)
    return _RegisterLoader(base) if base.turn.size == 1 else _Turns(base)


class _LoadRuns:
    """A thread's runs of a tile: where they are read, what must hold for them to exist, where they are put.

    Where there are more than a thread can hold, these are the runs of one ``turn``.
    """

    def __init__(
        self, e: GpuEmitter, side: LoadedSide, place: StagedTile, thread: ir.Value, threads: int, run: int
    ) -> None:
        self.e, self.side, self.place, self.run = e, side, place, run
        along = side.operand.along_depth
        fast, slow = (place.depth, place.free) if along else (place.free, place.depth)
        self.turn: LoopVar = e.source.loop(max(1, fast // run * slow // threads // _HELD))
        down = slow // self.turn.size
        self.starts = []
        for group, row in slots(e, thread, threads, fast // run, down):
            row += Expr.of(self.turn) * down
            self.starts.append((row, group * run) if along else (group * run, row))
        self.lane: LoopVar = e.source.loop(run)
        if run > 1:
            e.bind(self.lane, Val((constant(I64, 0),), e.entry), run, whole=True)
        self.base = e.code.shared(e.entry.builder, place.offset)

    @contextmanager
    def each_turn(self, frame: Frame) -> Iterator[Frame]:
        """Where the code of a turn goes: a loop, if there are several."""
        if self.turn.size == 1:
            yield frame
            return
        loop = ForLoop(frame, self.turn.size)
        self.e.bind(self.turn, Val((loop.index,), loop.frame))
        yield loop.frame
        loop.close()
        _keep_rolled(loop)

    def where(self, free: Expr, depth: Expr, lanes: bool) -> tuple[Index, list[InRange], list[InRange]] | None:
        """The operand's index for a run; the conditions of what is zero elsewhere, and those of what nobody uses
        elsewhere. None: all zero."""
        side = self.side
        if lanes:
            step = Expr.of(self.lane)
            free, depth = (free, depth + step) if side.operand.along_depth else (free + step, depth)
        free, depth = side.first + free, side.start + depth
        index, exists = side.operand.at(self.e.source, side.batch, free, depth)
        inside, wanted = condition(depth, 0, side.depth), condition(free, 0, side.size)
        if exists is None or inside is False or wanted is False:
            return None
        needed = [*exists] if inside is True else [*exists, inside]
        return index, needed, [] if wanted is True else [wanted]

    def address(self, frame: Frame, stage: ir.Value, free: Expr, depth: Expr, part: int = 0) -> ir.Value:
        """Where an element is put."""
        b, place = frame.builder, self.place
        first = b.gep(self.base, [b.mul(stage, constant(I32, place.nbytes))], source_etype=I8)
        at = self.e.split(place.at(free, depth))[0].value
        whole = b.gep(first, [at], source_etype=memory_type(place.dtype))
        return b.gep(whole, [constant(I32, part * place.plane)], source_etype=I8) if part else whole


class _RegisterLoader:
    """Read, convert (or compute), keep; then write."""

    copies = False

    def __init__(self, runs: _LoadRuns) -> None:
        self.runs = runs
        self.held: list[Val] = []

    def begin(self, frame: Frame, stage: ir.Value) -> None:
        self.held = [self._read(free, depth) for free, depth in self.runs.starts]

    def _read(self, free: Expr, depth: Expr) -> Val:
        runs, e = self.runs, self.runs.e
        value, dtype = runs.side.operand.value, runs.place.dtype
        zero = e.constant(0, dtype)
        found = runs.where(free, depth, lanes=runs.run > 1)
        if found is None:
            return zero
        index, needed, wanted = found
        element = convert_element(e, e.value(value, index, (*needed, *wanted)), value.shape.dtype, dtype)
        result = e.choose(needed, element, zero) if needed else element
        assert isinstance(result, Val)
        return result

    def end(self, frame: Frame, stage: ir.Value) -> None:
        runs, b = self.runs, frame.builder
        dtype, size = runs.place.dtype, runs.place.size
        along = runs.side.operand.along_depth
        for (free, depth), value in zip(runs.starts, self.held, strict=True):
            for part, v in enumerate(value.wide(runs.run)):
                stored = v if dtype.is_complex else encode(b, v, dtype)
                if along == runs.place.by_depth or runs.run == 1:
                    b.store(stored, runs.address(frame, stage, free, depth, part), align=runs.run * size)
                    continue
                for lane in range(runs.run):
                    at = (free, depth + lane) if along else (free + lane, depth)
                    element = b.extract_element(stored, constant(I32, lane))
                    b.store(element, runs.address(frame, stage, *at, part), align=size)


class _Turns(_RegisterLoader):
    """Read and written a few at a time, while other warps multiply."""

    def begin(self, frame: Frame, stage: ir.Value) -> None:
        with self.runs.each_turn(frame) as inner:
            super().begin(inner, stage)
            super().end(inner, stage)

    def end(self, frame: Frame, stage: ir.Value) -> None:
        pass


class _Copies:
    """Copied by the hardware; zero where there is nothing."""

    copies = True

    def __init__(self, runs: _LoadRuns) -> None:
        self.runs = runs

    def begin(self, frame: Frame, stage: ir.Value) -> None:
        with self.runs.each_turn(frame) as inner:
            self._start(inner, stage)

    def _start(self, frame: Frame, stage: ir.Value) -> None:
        runs, e, b = self.runs, self.runs.e, frame.builder
        leaf = runs.side.operand.value
        nbytes = runs.run * leaf.shape.dtype.nbytes
        for free, depth in runs.starts:
            to = runs.address(frame, stage, free, depth)
            found = runs.where(free, depth, lanes=False)
            at, taken = constant(I64, 0), constant(ir.IntType(1), 0)
            if found is not None:
                index, needed, wanted = found
                at = e.split(linear(index, leaf.shape.dims))[0].value
                holds = e.mask((*needed, *wanted))
                taken = None if holds is None else holds.value
                at = at if taken is None else b.select(taken, at, constant(I64, 0))
            source = b.gep(e.pointers[leaf], [at], source_etype=memory_type(leaf.shape.dtype))
            e.code.copy_async(b, to, source, nbytes, taken)

    def end(self, frame: Frame, stage: ir.Value) -> None:
        pass


def _keep_rolled(loop: ForLoop) -> None:
    """Unrolled, the loop would hold the addresses of all turns in registers."""
    module = loop.frame.builder.module
    rule = module.add_metadata(["llvm.loop.unroll.disable"])
    name = module.add_metadata([rule, constant(I32, len(module.metadata))])
    name.operands = (name, rule)
    loop.frame.builder.block.terminator.set_metadata("llvm.loop", name)
