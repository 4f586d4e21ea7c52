"""Row kernels: reductions whose results are broadcast back over what they read (softmax, layer norm, their gradients).

`shardc.compiler.lower.fuse.row_plan` says what happens in which loop. Some threads, a warp or a block walk one row,
each always the same elements of it. Where those fit in registers the loops are written out, and every value is read or
computed once. Longer rows are walked again in every loop; what the plan keeps lies in results' rows or in shared memory
then, where each thread finds what it has put there itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from llvmlite import ir

from shardc.compiler.elements import memory
from shardc.compiler.elements.affine import Expr, LoopVar, delinearise, linear
from shardc.compiler.elements.arithmetic.registers import part_count
from shardc.compiler.elements.elements import Index
from shardc.compiler.elements.emitter import Known
from shardc.compiler.elements.fold_emitter import across_lanes, round_element
from shardc.compiler.elements.frames import Frame, IfBlock, Val, apply, deepest
from shardc.compiler.elements.loop_space import element_bits, power_below
from shardc.compiler.gpu.function import GpuEmitter, GpuFunction, GpuKernel
from shardc.compiler.gpu.reductions.accumulate import Reducer, SharedSpace, Totals, across_threads
from shardc.compiler.gpu.reductions.row_reduction import RowPlace, RowShape, row_place, row_shape
from shardc.compiler.gpu.reductions.walk import WorkShare, walk
from shardc.compiler.lower.fuse.row_plan import RowPlan, plan_rows
from shardc.hlo.ir.ir import Instruction
from shardc.native.gpu.target import GpuTarget
from shardc.native.math.vector import I8, I32, I64, constant

__all__ = ["emit_row_kernel", "takes_row_kernel"]

#: 32-bit registers of a thread that hold a row's elements: wanted, and at most; and steps that are written out.
_WANTED, _MOST, _STEPS = 32, 64, 16
#: Registers of a block's threads together, and those of a thread for everything else.
_REGISTERS, _OTHERS = 65536, 28


@dataclass(frozen=True, slots=True)
class _Shape:
    """How rows are walked: by whom, how many elements at once, and whether they stay in registers."""

    threads: RowShape
    lanes: int
    cached: bool

    @staticmethod
    def of(target: GpuTarget, plan: RowPlan) -> _Shape:
        frame = plan.frame
        lanes = _lanes(plan)
        units = frame.columns // lanes
        held = lanes * _held(plan)
        for wanted in (_WANTED, _MOST):
            shape = row_shape(target, frame.rows, units, split=False, steps=max(1, min(_STEPS, wanted // held)))
            room = min(wanted, _REGISTERS // shape.threads - _OTHERS)
            if -(-units // shape.width) * held <= room and units <= _STEPS * shape.width:
                return _Shape(shape, lanes, True)
        return _Shape(row_shape(target, frame.rows, units, split=False, steps=_STEPS), lanes, False)


def _full(plan: RowPlan) -> list[Instruction]:
    return [i for i, spot in plan.spots.items() if spot == plan.frame.full]


def _lanes(plan: RowPlan) -> int:
    """Neighbouring elements that a thread takes at once: 16 bytes of the widest array, within one index of the outer
    dimensions of a row where something is read by those."""
    frame = plan.frame
    arrays = [*(p for p in plan.reads if p in plan.spots), *(o.value for o in plan.outputs)]
    widest = max((i.shape.dtype.nbytes for i in arrays if plan.spots[i] == frame.full), default=4)
    lanes = min(8, power_below(max(1, 16 // widest)), frame.columns & -frame.columns)
    inner = 1
    for d, following in zip(reversed(frame.reduced), [*reversed(frame.reduced[:-1]), None], strict=True):
        inner *= frame.dims[d]
        apart = (s is not None and (d in s) != (following in s) for s in plan.spots.values())
        if following is not None and any(apart):
            lanes = min(lanes, inner & -inner)
    return lanes


def _held(plan: RowPlan) -> int:
    """32-bit registers that an element of the row takes between two loops, where it takes most: what one loop has read
    or computed and a later one wants."""
    made: dict[Instruction, int] = {}
    wanted: dict[Instruction, int] = {}
    for number, reductions in enumerate(plan.loops):
        stack = [*(r.operands[0] for r in reductions), *(o.value for o in plan.outputs if o.loop == number)]
        new: set[Instruction] = set()
        while stack:
            i = stack.pop()
            if i in made:
                wanted[i] = number
            elif i not in new and _varies(plan, i):
                new.add(i)
                stack.extend(i.operands)
        made.update(dict.fromkeys(new, number))
    boundaries = range(len(plan.loops) - 1)
    live = ([i for i, last in wanted.items() if made[i] <= n < last] for n in boundaries)
    return max((sum(map(_registers, values)) for values in live), default=0) or 1


def _varies(plan: RowPlan, i: Instruction) -> bool:
    """Whether the value takes a register for each element of a row."""
    spot = plan.spots.get(i)
    return i.opcode not in ("iota", "constant") and (spot is None or not set(spot).isdisjoint(plan.frame.reduced))


def _registers(i: Instruction) -> int:
    return element_bits([i.shape.dtype]) * part_count(i.shape.dtype) // 32


def takes_row_kernel(kernel: GpuKernel) -> bool:
    """Any fusion with a row plan: its reductions run over the last dimensions of what its results lie in."""
    if kernel.instruction.opcode != "fusion" or kernel.instruction.attrs["kind"] == "kOutput":
        return False
    return plan_rows(kernel.computation) is not None


def emit_row_kernel(kernel: GpuKernel) -> None:
    """One launch, in which every array is read and written once (long rows: read again while they are in the cache)."""
    plan = plan_rows(kernel.computation)
    assert plan is not None
    shape = _Shape.of(kernel.target, plan)
    function = kernel.function([*kernel.operands, *kernel.results], shape.threads.threads)
    rows = _RowThread(kernel, plan, shape, function)
    rows.fill()
    rows.e.finish()
    kernel.launch(function, shape.threads.grid, rows.shared.nbytes)


class _RowThread:
    """The code of a thread."""

    def __init__(self, kernel: GpuKernel, plan: RowPlan, shape: _Shape, function: GpuFunction) -> None:
        self.plan, self.shape = plan, shape
        self.e: GpuEmitter = function.emitter(kernel.leaves())
        self.results = [function.pointer(a) for a in kernel.results]
        self.shapes = kernel.result_shapes
        self.shared = SharedSpace()
        self.row = self.e.source.loop(plan.frame.rows)
        code, b = self.e.code, self.e.entry.builder
        self.place: RowPlace = row_place(b, code.thread(b), code.block(b), shape.threads)
        if self.row.size > 1:
            self.e.bind(self.row, Val((self.place.row,), self.e.entry))
        self.share = WorkShare(plan.frame.columns // shape.lanes, shape.threads.width, 2)

    def fill(self) -> None:
        frame = self.e.entry
        columns: _RowLoops = (_Cached if self.shape.cached else _Walked)(self)
        for number, reductions in enumerate(self.plan.loops):
            totals = columns.loop(frame, number, reductions)
            own = [(_reducer(r), t) for r, t in zip(reductions, totals, strict=True)]
            threads = self.shape.threads
            found = across_threads(self.e, frame, own, threads.width, threads.threads, self.shared) if own else []
            for i, total in zip(reductions, found, strict=True):
                self._finish(i, total)
        self._per_row(frame)

    def index(self, i: Instruction, column: LoopVar | None) -> Index:
        """The index of a value that has a spot, at the present row and at ``column``."""
        frame, source, spot = self.plan.frame, self.e.source, self.plan.spots[i]
        assert spot is not None, f"%{i.name} has no place in the rows"
        kept = delinearise(source, Expr.of(self.row), [frame.dims[d] for d in frame.kept_dims])
        at = dict(zip(frame.kept_dims, kept, strict=True))
        if column is not None:
            reduced = delinearise(source, Expr.of(column), [frame.dims[d] for d in frame.reduced])
            at.update(zip(frame.reduced, reduced, strict=True))
        along = iter(spot)
        return tuple(Expr() if n == 1 else at[next(along)] for n in i.shape.dims)

    def _finish(self, i: Instruction, total: list[Val]) -> None:
        """Put the initial value in; from here on the result is known."""
        e = self.e
        total = e.call(i.attrs["to_apply"], [e.value(i.operands[1], ()), *total], True)
        result, own = round_element(e, total[0], i.shape.dtype), self.index(i, None)
        e.known[i] = lambda index, mask: result if index == own else None

    def element(self, i: Instruction, column: LoopVar) -> Val:
        value: Val = self.e.value(i, self.index(i, column))
        return Val(value.wide(self.shape.lanes), value.frame, self.shape.lanes)

    def reduce_step(self, i: Instruction, column: LoopVar) -> list[Val]:
        """What a reduction takes of one step: its lanes folded."""
        r = _reducer(i)
        return across_lanes(self.e, [self.element(i.operands[0], column)], r.computation, self.shape.lanes)

    def offset(self, column: LoopVar) -> Expr:
        """The place of an element in an array of the whole frame."""
        return Expr.of(self.row) * self.plan.frame.columns + Expr.of(column)

    def write(
        self,
        frame: Frame,
        places: Sequence[tuple[Instruction, ir.Value, Expr]],
        values: Sequence[Val],
        holds: ir.Value | None,
    ) -> None:
        """Store elements of one step (what, where, at which offset), if it is one of the thread's own."""
        conditions = [c for c in (self.place.valid, holds) if c is not None]
        if not places:
            return
        branch = None
        if conditions:
            branch = IfBlock(frame, reduce(frame.builder.and_, conditions))
        inner = frame if branch is None else branch.frame
        for (i, target, offset), value in zip(places, values, strict=True):
            self.store(inner, i, value, target, offset)
        if branch is not None:
            branch.close()

    def store(self, frame: Frame, i: Instruction, value: Val, target: ir.Value, offset: Expr) -> None:
        at = self.e.split(offset)[0]
        b = deepest([at, value], frame).builder
        memory.store(b, value.parts, target, at.value, i.shape.dtype, None)

    def _per_row(self, frame: Frame) -> None:
        """Write what is one element per row, when all threads have read what may lie there."""
        outputs = [(n, o.value) for n, o in enumerate(self.plan.outputs) if o.loop is None]
        if not outputs:
            return
        b, e = frame.builder, self.e
        values = [e.value(i, self.index(i, None)) for _, i in outputs]
        if self.shape.threads.width > e.code.warp:
            e.code.barrier(b)
        else:
            e.code.warp_barrier(b)
        writing = IfBlock(frame, self.place.leads(b))
        for (n, i), value in zip(outputs, values, strict=True):
            self.store(writing.frame, i, value, self.results[n], linear(self.index(i, None), self.shapes[n].dims))
        writing.close()


def _reducer(i: Instruction) -> Reducer:
    return Reducer(i.attrs["to_apply"], (i.operands[0].shape.dtype,))


class _RowLoops:
    """How the elements of a row are gone through, once per loop."""

    def __init__(self, rows: _RowThread) -> None:
        self.rows, self.e, self.plan = rows, rows.e, rows.plan

    def loop(self, frame: Frame, number: int, reductions: Sequence[Instruction]) -> list[list[Val]]:
        """All that a loop computes; what each reduction comes to in this thread."""
        raise NotImplementedError


class _Cached(_RowLoops):
    """Every step has a variable of its own and code of its own, so what it computes once is there in later loops."""

    def __init__(self, rows: _RowThread) -> None:
        super().__init__(rows)
        e, share, lanes = rows.e, rows.share, rows.shape.lanes
        b = e.entry.builder
        self.steps: list[tuple[LoopVar, ir.Value | None]] = []
        for k in range(-(-share.units // share.workers)):
            unit = b.add(rows.place.number, constant(I64, k * share.workers))
            holds = None
            if (k + 1) * share.workers > share.units:
                holds = b.icmp_unsigned("<", unit, constant(I64, share.units))
                unit = b.select(holds, unit, constant(I64, 0))
            column = e.source.loop(rows.plan.frame.columns)
            e.bind(column, Val((b.mul(unit, constant(I64, lanes)),), e.entry), lanes, whole=True)
            self.steps.append((column, holds))

    def loop(self, frame: Frame, number: int, reductions: Sequence[Instruction]) -> list[list[Val]]:
        rows = self.rows
        values: list[list[list[Val]]] = [[] for _ in reductions]
        for column, holds in self.steps:
            for i, found in zip(reductions, values, strict=True):
                found.append(self._where(rows.reduce_step(i, column), holds, i))
        totals = [_reducer(i).tree(self.e, v) for i, v in zip(reductions, values, strict=True)]
        outputs = [(n, o.value) for n, o in enumerate(self.plan.outputs) if o.loop == number]
        ready = [[rows.element(i, column) for _, i in outputs] for column, _ in self.steps]
        for (column, holds), elements in zip(self.steps, ready, strict=True):
            places = [(i, rows.results[n], rows.offset(column)) for n, i in outputs]
            rows.write(frame, places, elements, holds)
        return totals

    def _where(self, values: list[Val], holds: ir.Value | None, i: Instruction) -> list[Val]:
        """Neutral values where a step is beyond the row's end."""
        if holds is None:
            return values
        r = _reducer(i)
        nothing = self.e.constant(r.neutral, r.dtypes[0])

        def select(b: ir.IRBuilder, p: ir.Value, x: object, y: object) -> object:
            if isinstance(x, tuple):
                assert isinstance(y, tuple)
                return tuple(b.select(p, u, v) for u, v in zip(x, y, strict=True))
            return b.select(p, x, y)

        return [apply(select, [Val((holds,), self.e.entry), v, nothing], self.e.entry) for v in values]


class _Walked(_RowLoops):
    """One variable for all steps; values that later loops want are computed again, or lie where the plan keeps them."""

    def __init__(self, rows: _RowThread) -> None:
        super().__init__(rows)
        self.column = self.e.source.loop(self.plan.frame.columns)
        code, b = self.e.code, self.e.entry.builder
        threads = rows.shape.threads
        self.scratch: dict[Instruction, ir.Value] = {}
        for i, (_, place) in self.plan.kept.items():
            if place is None:
                each = -(-self.plan.frame.columns * i.shape.dtype.nbytes // 16) * 16
                start = code.shared(b, rows.shared.take(each * (threads.threads // threads.width)))
                group = b.udiv(code.thread(b), constant(I32, threads.width))
                self.scratch[i] = b.gep(start, [b.mul(group, constant(I32, each))], source_etype=I8)

    def loop(self, frame: Frame, number: int, reductions: Sequence[Instruction]) -> list[list[Val]]:
        rows, e = self.rows, self.e
        totals = Totals(e, [_reducer(i) for i in reductions], 1)
        totals.start(frame)
        stores = self._stores(number)

        def step(inner: Frame, unit: ir.Value, holds: ir.Value | None) -> list[list[Val]]:
            lanes = constant(I64, rows.shape.lanes)
            counter = Val((inner.builder.mul(unit, lanes),), inner)
            e.bind(self.column, counter, rows.shape.lanes, whole=True)
            values = [rows.element(i, self.column) for i, _ in stores]
            out = [rows.reduce_step(i, self.column) for i in reductions]
            rows.write(inner, [(i, t, self._offset(i, t)) for i, t in stores], values, holds)
            return out

        walk(frame, rows.share, rows.place.number, step, totals)
        for i, target in stores:
            if i in self.plan.kept:
                e.known[i] = self._reader(i, target, frame)
        return totals.read(frame)

    def _stores(self, number: int) -> list[tuple[Instruction, ir.Value]]:
        """What this loop writes, and where."""
        found = [
            (i, self.scratch[i] if place is None else self.rows.results[place])
            for i, (loop, place) in self.plan.kept.items()
            if loop == number
        ]
        for n, o in enumerate(self.plan.outputs):
            if o.loop == number and (o.value, self.rows.results[n]) not in found:
                found.append((o.value, self.rows.results[n]))
        return found

    def _offset(self, i: Instruction, target: ir.Value) -> Expr:
        return Expr.of(self.column) if target is self.scratch.get(i) else self.rows.offset(self.column)

    def _reader(self, i: Instruction, target: ir.Value, row: Frame) -> Known:
        """Reads what an earlier loop has stored."""
        e, own, offset = self.e, self.rows.index(i, self.column), self._offset(i, target)
        return lambda index, mask: e.load_stored(target, i.shape, offset, mask, row) if index == own else None
