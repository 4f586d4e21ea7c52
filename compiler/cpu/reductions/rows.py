"""Row kernels: reductions whose results are broadcast back over what they read, and all around them, row by row.

`shardc.compiler.lower.fuse.row_plan` says what happens in which loop. Rows are independent of each other, so chunks of
them run on several threads; within a row every loop runs in vectors along it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from llvmlite import ir

from shardc.compiler.cpu.body import CpuKernel
from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.cpu.parallel import PhaseKernel, chunks, flops_of, phase
from shardc.compiler.elements import memory
from shardc.compiler.elements.affine import Expr, Mask, Rest, delinearise, linear
from shardc.compiler.elements.arithmetic.registers import is_small_float, memory_type, part_count, register_type
from shardc.compiler.elements.elements import Index
from shardc.compiler.elements.emitter import Known
from shardc.compiler.elements.fold_emitter import across_lanes
from shardc.compiler.elements.frames import ForLoop, Frame, Val, apply, deepest
from shardc.compiler.elements.loop_space import element_bits, power_above
from shardc.compiler.lower.fuse.fusion_rules import is_cheap
from shardc.compiler.lower.fuse.row_plan import RowPlan
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.reducers import identity_of
from shardc.hlo.ir.types import DType
from shardc.native.math.small_floats import round_mantissa
from shardc.native.math.vector import I8, I32, I64, PTR, constant, intrinsic

__all__ = ["emit_rows"]

#: Steps that one accumulator lane takes before it is added to a second one.
_CHUNK = 512
#: Operands of fewer bytes are expected to lie in some cache; of others, this many bytes ahead are fetched.
_OUT_OF_CACHE, _AHEAD = 4 << 20, 8 << 10


def emit_rows(kernel: CpuKernel, computation: Computation, plan: RowPlan) -> None:
    """Fill the results of a fusion that calls ``computation``, in chunks of rows where there is much to do."""
    rows = plan.frame.rows
    nbytes = sum(s.nbytes for s in kernel.result_shapes) + sum(o.shape.nbytes for o in kernel.instruction.operands)
    count = chunks(nbytes=nbytes, flops=flops_of(kernel.instruction), most=rows, tuning=kernel.tuning)
    e = kernel.emitter(dict(zip(computation.parameters, kernel.operands, strict=True)))
    if count <= 1:
        _RowWalk(e, kernel, plan).fill(constant(I64, 0), constant(I64, rows))
        e.finish()
        return

    def emit(part: PhaseKernel) -> None:
        own = part.emitter(dict(zip(computation.parameters, part.operands, strict=True)))
        b = own.entry.builder
        begin, end = (_share(b, at, rows, count) for at in (part.begin, part.end))
        _RowWalk(own, part, plan).fill(begin, end)
        own.finish()

    phase(kernel, e, count, emit)
    e.finish()


def _share(b: ir.IRBuilder, chunk: ir.Value, rows: int, count: int) -> ir.Value:
    """The first row of a chunk."""
    return b.udiv(b.mul(chunk, constant(I64, rows)), constant(I64, count))


#: Fewer lanes than this are not worth it to read what differs between lanes without gathering.
_FEWEST = 4


@dataclass
class _RowSum:
    """A reduction under way: its accumulators, and those of the chunks before (none for short rows)."""

    reduction: Instruction
    slots: list[ir.Value] = field(default_factory=list)
    totals: list[ir.Value] = field(default_factory=list)

    @property
    def dtype(self) -> DType:
        return self.reduction.operands[0].shape.dtype


class _RowWalk:
    """The code of one function that walks rows."""

    def __init__(self, e: CpuEmitter, kernel: CpuKernel, plan: RowPlan) -> None:
        self.e = e
        self.plan = plan
        self.results = kernel.results
        self.streamed = kernel.tuning.streamed
        self.shapes = kernel.result_shapes
        frame = plan.frame
        self.row, self.column = e.source.loop(frame.rows), e.source.loop(frame.columns)
        kept = delinearise(e.source, Expr.of(self.row), [frame.dims[d] for d in frame.kept_dims])
        reduced = delinearise(e.source, Expr.of(self.column), [frame.dims[d] for d in frame.reduced])
        self.at = dict(zip((*frame.kept_dims, *frame.reduced), (*kept, *reduced), strict=True))
        self.scratch: dict[Instruction, ir.Value] = {}
        for i, (_, place) in plan.kept.items():
            if place is None:
                cells = ir.ArrayType(memory_type(i.shape.dtype), frame.columns * part_count(i.shape.dtype))
                self.scratch[i] = e.slot(cells)
                self.scratch[i].type = PTR  # llvmlite gives it a typed pointer

    def index(self, i: Instruction) -> Index:
        """The index of a value that has a spot, at the present row and column."""
        spot = self.plan.spots[i]
        assert spot is not None, f"%{i.name} has no place in the rows"
        along = iter(spot)
        return tuple(Expr() if n == 1 else self.at[next(along)] for n in i.shape.dims)

    def fill(self, begin: ir.Value, end: ir.Value) -> None:
        loop = ForLoop(self.e.entry, end, 1, begin)
        if self.row.size > 1:
            self.e.bind(self.row, Val((loop.index,), loop.frame))
        for number, reductions in enumerate(self.plan.loops):
            self._columns(loop.frame, number, [_RowSum(r) for r in reductions])
        self._per_row(loop.frame)
        loop.close()
        if any(map(self._streams, range(len(self.results)))):
            self.e.entry.builder.fence("seq_cst")

    def _per_row(self, frame: Frame) -> None:
        """Write what is one element per row, after all has been read."""
        e = self.e
        values = [(n, e.value(o.value, self.index(o.value))) for n, o in enumerate(self.plan.outputs) if o.loop is None]
        for n, value in values:
            at = e.index(linear(self.index(self.plan.outputs[n].value), self.shapes[n].dims))
            b = deepest([at, value], frame).builder
            memory.store(b, value.parts, self.results[n], at.value, self.shapes[n].dtype, None)

    def _columns(self, frame: Frame, number: int, sums: list[_RowSum]) -> None:
        """One loop along the row: reductions side by side, and the values that are ready."""
        lanes = self._lanes(number)
        columns = self.plan.frame.columns
        whole, rest = divmod(columns, lanes)
        long = whole > 2 * _CHUNK and any(_grows(s) for s in sums)
        for s in sums:
            self._start(s, frame, lanes, long)
        stores = self._stores(number)
        if long:
            self._pieces(frame, sums, stores, whole * lanes, lanes)
        elif whole:
            loop = ForLoop(frame, whole * lanes, lanes)
            if number == 1:
                self._ask_ahead(loop, lanes)
            self._run(loop, sums, stores, lanes)
        if rest:
            self._bind(Val((constant(I64, whole * lanes),), self.e.entry), lanes)
            self._step(frame, sums, stores, lanes, (Rest(Expr.of(self.column), 0, columns),))
        for s in sums:
            self._finish(s, frame, lanes)
        for i, target in stores:
            if i in self.plan.kept:
                self.e.known[i] = self._reader(i, target, frame)

    def _bind(self, counter: Val, lanes: int) -> None:
        self.e.bind(self.column, counter, lanes, whole=True)

    def _run(self, loop: ForLoop, sums: list[_RowSum], stores: list[tuple[Instruction, ir.Value]], lanes: int) -> None:
        self._bind(Val((loop.index,), loop.frame), lanes)
        self._step(loop.frame, sums, stores, lanes, ())
        loop.close()

    def _ask_ahead(self, loop: ForLoop, lanes: int) -> None:
        """Have a later row fetched: later loops find theirs in the cache, and leave the memory idle."""
        b, columns = loop.frame.builder, self.plan.frame.columns
        read = [(i, p) for i, p in self.e.pointers.items() if self.plan.spots.get(i) == self.plan.frame.full]
        if self.row.size == 1 or sum(i.shape.nbytes for i, _ in read) < _OUT_OF_CACHE:
            return
        first = b.add(b.mul(self.e.bound(self.row).value.value, constant(I64, columns)), loop.index)
        for i, pointer in read:
            size = i.shape.dtype.nbytes
            ahead = -(-_AHEAD // (columns * size)) * columns
            place = b.gep(pointer, [b.mul(b.add(first, constant(I64, ahead)), constant(I64, size))], source_etype=I8)
            for line in range(0, lanes * size, memory.LINE):
                at = b.gep(place, [constant(I64, line)], source_etype=I8)
                intrinsic(b, "llvm.prefetch", ir.VoidType(), [at, *(constant(I32, k) for k in (0, 2, 1))])

    def _pieces(
        self, frame: Frame, sums: list[_RowSum], stores: list[tuple[Instruction, ir.Value]], end: int, lanes: int
    ) -> None:
        """A long row in pieces, each with accumulators of its own: errors grow with the piece only."""
        size = _CHUNK * lanes
        outer = ForLoop(frame, end, size)
        b = outer.frame.builder
        past = intrinsic(b, "llvm.umin", I64, [b.add(outer.index, constant(I64, size)), constant(I64, end)])
        self._run(ForLoop(outer.frame, past, lanes, outer.index), sums, stores, lanes)
        for s in sums:
            self._flush(s, outer.frame, lanes)
        outer.close()

    def _lanes(self, number: int) -> int:
        """Wide enough to hide the latency of simple reductions; narrower where values need many registers."""
        along = [i for i, spot in self.plan.spots.items() if spot == self.plan.frame.full]
        bits = element_bits(i.shape.dtype for i in along)
        heavy = any(not is_cheap(i) for i in along) or len(self.plan.loops[number]) > 2
        registers = 32 if self.e.vector_bits == 512 else 16
        vectors = 4 if not heavy else 2 if self._registers(number, along, 2) <= registers else 1
        return min(vectors * self.e.vector_bits // bits, power_above(self.plan.frame.columns), self._together())

    def _registers(self, number: int, along: list[Instruction], vectors: int) -> int:
        """What a loop should have in registers, roughly: sums, what is read again, and what a row has one of."""
        read = [o for i in along for o in dict.fromkeys(i.operands)]
        again = sum(read.count(i) > 1 for i in along)
        fixed = {o for o in read if o.shape.rank and not self._varies(o)}
        return vectors * (len(self.plan.loops[number]) + again) + len(fixed)

    def _varies(self, i: Instruction) -> bool:
        """Whether a value differs along the row."""
        spot = self.plan.spots.get(i)
        return spot is None or not set(spot).isdisjoint(self.plan.frame.reduced)

    def _together(self) -> int:
        """Most lanes that stay within one index of the outer dimensions of a row, where something is read by those; at
        least some, since lanes that are gathered are better than none."""
        frame = self.plan.frame
        inner, most = 1, 1 << 30
        for d, following in zip(reversed(frame.reduced), [*reversed(frame.reduced[:-1]), None], strict=True):
            inner *= frame.dims[d]
            differs = (s is not None and (d in s) != (following in s) for s in self.plan.spots.values())
            if following is not None and any(differs):
                most = min(most, inner & -inner)
        return most if most >= _FEWEST else 1 << 30

    def _stores(self, number: int) -> list[tuple[Instruction, ir.Value]]:
        """What this loop writes, and where."""
        found: list[tuple[Instruction, ir.Value]] = []
        for i, (loop, place) in self.plan.kept.items():
            if loop == number:
                found.append((i, self.scratch[i] if place is None else self.results[place]))
        for n, o in enumerate(self.plan.outputs):
            if o.loop == number and (o.value, self.results[n]) not in found:
                found.append((o.value, self.results[n]))
        return found

    def _streams(self, result: int) -> bool:
        """Whether a result is made of whole aligned lines, and so large that they should bypass the cache."""
        shape = self.shapes[result]
        if shape.nbytes < self.streamed or self.plan.outputs[result].loop is None:
            return False
        used = any(place == result for _, place in self.plan.kept.values())
        return not used and self.plan.frame.columns * shape.dtype.nbytes % memory.LINE == 0

    def _offset(self, i: Instruction, target: ir.Value) -> Expr:
        """Where the element of a value in the whole frame lies at the present row and column, in what keeps it."""
        if target is self.scratch.get(i):
            return Expr.of(self.column)
        return Expr.of(self.row) * self.plan.frame.columns + Expr.of(self.column)

    def _reader(self, i: Instruction, target: ir.Value, row: Frame) -> Known:
        """Reads what an earlier loop has stored."""
        e, own, offset = self.e, self.index(i), self._offset(i, target)
        return lambda index, mask: e.load_stored(target, i.shape, offset, mask, row) if index == own else None

    def _start(self, s: _RowSum, frame: Frame, lanes: int, long: bool) -> None:
        t = register_type(s.dtype, lanes)
        for places in (s.slots, s.totals) if long else (s.slots,):
            places.extend(self.e.slot(t) for _ in range(part_count(s.dtype)))
            self._reset(s, places, frame, lanes)

    def _reset(self, s: _RowSum, slots: list[ir.Value], frame: Frame, lanes: int) -> None:
        neutral = self.e.constant(identity_of(s.reduction.attrs["to_apply"], s.dtype), s.dtype)
        self._write(slots, neutral.wide(lanes), frame)

    def _write(self, slots: list[ir.Value], parts: tuple[ir.Value, ...], frame: Frame) -> None:
        for slot, part in zip(slots, parts, strict=True):
            frame.builder.store(part, slot)

    def _read(self, s: _RowSum, slots: list[ir.Value], frame: Frame, lanes: int) -> Val:
        t = register_type(s.dtype, lanes)
        return Val(tuple(frame.builder.load(slot, typ=t) for slot in slots), frame, lanes)

    def _flush(self, s: _RowSum, frame: Frame, lanes: int) -> None:
        """Add the accumulators to the totals and start them anew."""
        reducer = s.reduction.attrs["to_apply"]
        operands = [self._read(s, s.totals, frame, lanes), self._read(s, s.slots, frame, lanes)]
        self._write(s.totals, self.e.call(reducer, operands, True)[0].wide(lanes), frame)
        self._reset(s, s.slots, frame, lanes)

    def _step(
        self, frame: Frame, sums: list[_RowSum], stores: list[tuple[Instruction, ir.Value]], lanes: int, mask: Mask
    ) -> None:
        """All of a loop at one vector of columns: values first, then reductions and stores."""
        e = self.e
        holds = e.mask(mask)
        kept = None if holds is None else holds.wide(lanes)[0]
        new = [e.value(s.reduction.operands[0], self.index(s.reduction.operands[0]), mask) for s in sums]
        values = [e.value(i, self.index(i), mask) for i, _ in stores]
        for s, value in zip(sums, new, strict=True):
            self._accumulate(s, value, frame, lanes, kept)
        for (i, target), value in zip(stores, values, strict=True):
            at = e.split(self._offset(i, target))[0]
            b = deepest([at, value], frame).builder
            past = target in self.results and self._streams(self.results.index(target))
            if past and kept is None and lanes * i.shape.dtype.nbytes % memory.LINE == 0:
                memory.stream(b, value.wide(lanes), target, at.value, i.shape.dtype)
            else:
                memory.store(b, value.wide(lanes), target, at.value, i.shape.dtype, kept)

    def _accumulate(self, s: _RowSum, value: Val, frame: Frame, lanes: int, kept: ir.Value | None) -> None:
        old = self._read(s, s.slots, frame, lanes)
        parts = self.e.call(s.reduction.attrs["to_apply"], [old, value], True)[0].wide(lanes)
        if kept is not None:
            parts = tuple(frame.builder.select(kept, p, o) for p, o in zip(parts, old.parts, strict=True))
        self._write(s.slots, parts, frame)

    def _finish(self, s: _RowSum, frame: Frame, lanes: int) -> None:
        """Put lanes and initial value together; from here on the result is known."""
        e, i, reducer = self.e, s.reduction, s.reduction.attrs["to_apply"]
        if s.totals:
            self._flush(s, frame, lanes)
        result = [self._read(s, s.totals or s.slots, frame, lanes)]
        if lanes > 1:
            result = across_lanes(e, result, reducer, lanes)
        (total,) = e.call(reducer, [e.value(i.operands[1], ()), *result], True)
        if is_small_float(i.shape.dtype):
            total = apply(lambda b, x: round_mantissa(b, x, i.shape.dtype), [total], frame)
        own = self.index(i)
        e.known[i] = lambda index, mask: total if index == own else None


def _grows(s: _RowSum) -> bool:
    """Whether the errors of a long sum grow with its length."""
    root = s.reduction.attrs["to_apply"].root
    return root.opcode == "add" and (s.dtype.is_float or s.dtype.is_complex)
