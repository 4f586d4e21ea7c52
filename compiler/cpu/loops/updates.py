"""Ops that change a part of an array: dynamic-update-slice and scatter. In place when operand and result coincide."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from llvmlite import ir

from shardc.compiler.cpu.body import CpuKernel
from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.cpu.loops.mapping import can_cut, emit_map
from shardc.compiler.cpu.loops.outputs import MapOutput
from shardc.compiler.cpu.parallel import ChunkSpan, PhaseKernel, chunks, flops_of, phase
from shardc.compiler.elements import memory
from shardc.compiler.elements.affine import Expr, LoopVar, Mask, Rest, linear
from shardc.compiler.elements.elements import Element, Elements, Index
from shardc.compiler.elements.frames import ForLoop, Frame, IfBlock, Val, apply, deepest
from shardc.compiler.elements.indexing import start_position, starts
from shardc.compiler.elements.loop_space import element_bits, power_above
from shardc.compiler.elements.scalar_programs import is_scalar_program
from shardc.compiler.tuning import DEFAULT, Tuning
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.types import Shape, array_shape
from shardc.native.math.vector import I1, I64, constant, intrinsic

__all__ = ["emit_dynamic_update_slice", "emit_scatter", "emit_update", "scatter_pieces"]

#: Elements of a window that stay together: threads share the window's stripes.
_STRIPE = 128


def copy_unless_same(e: CpuEmitter, target: ir.Value, source: ir.Value, nbytes: int) -> None:
    """``memcpy`` where the two are not the same memory."""
    b = e.entry.builder
    with b.if_then(b.icmp_unsigned("!=", target, source)):
        arguments = [target, source, constant(I64, nbytes), constant(I1, 0)]
        intrinsic(b, "llvm.memcpy", ir.VoidType(), arguments)


def _copy_unless_same(kernel: CpuKernel, e: CpuEmitter, target: ir.Value, source: ir.Value, nbytes: int) -> None:
    """The same, on several threads where it is much."""
    b = e.entry.builder
    count = chunks(nbytes=2 * nbytes, tuning=kernel.tuning)
    if count == 1:
        copy_unless_same(e, target, source, nbytes)
        return
    with b.if_then(b.icmp_unsigned("!=", target, source)):
        phase(kernel, e, count, partial(_copy, nbytes, count), shared=[target, source])


def _copy(nbytes: int, count: int, part: PhaseKernel) -> None:
    """A share of a copy: memory as integers, in vectors."""
    target, source = part.shared
    whole = array_shape("u64", nbytes // 8) if nbytes % 8 == 0 else array_shape("u8", nbytes)
    leaf = Instruction("parameter", whole, attrs=MappingProxyType({"index": 0}))
    e = part.emitter({leaf: source})
    output = MapOutput(target, whole, _value_of(leaf), streamed=part.tuning.streamed)
    emit_map(e, whole.dims, [output], span=ChunkSpan(count, part.begin, part.end))
    e.finish()


def emit_update(kernel: CpuKernel, computation: Computation) -> None:
    """A fusion whose root is one of the two; what it writes is computed on the way."""
    emit = emit_scatter if computation.root.opcode == "scatter" else emit_dynamic_update_slice
    emit(kernel, computation.root, dict(zip(computation.parameters, kernel.operands, strict=True)))


def emit_dynamic_update_slice(
    kernel: CpuKernel, root: Instruction | None = None, pointers: Mapping[Instruction, ir.Value] | None = None
) -> None:
    """Copy the operand (unless in place), then write the update over it; ``root``: of a fusion on ``pointers``."""
    i = root or kernel.instruction
    pointers = kernel.pointers() if pointers is None else pointers
    operand, update = i.operands[:2]
    e = kernel.emitter(pointers)
    _copy_unless_same(kernel, e, kernel.results[0], pointers[operand], operand.shape.nbytes)

    def place(e: Elements, index: Index) -> Index:
        begin = starts(e, i, 2, operand.shape.dims, update.shape.dims)
        return tuple(x + s for x, s in zip(index, begin, strict=True))

    def output(k: CpuKernel) -> list[MapOutput]:
        return [MapOutput(k.results[0], i.shape, _value_of(update), place)]

    def emit(part: PhaseKernel) -> None:
        own = part.emitter({o: part.operands[kernel.operands.index(p)] for o, p in pointers.items()})
        emit_map(own, update.shape.dims, output(part), span=ChunkSpan(count, part.begin, part.end))
        own.finish()

    flops = flops_of(kernel.instruction) if root is not None else 0
    count = chunks(nbytes=2 * update.shape.nbytes, flops=flops, tuning=kernel.tuning)
    if count > 1 and can_cut(e, update.shape.dims, output(kernel), count):
        phase(kernel, e, count, emit)
    else:
        emit_map(e, update.shape.dims, output(kernel))
    e.finish()


def _value_of(instruction: Instruction) -> Element:
    def element(e: Elements, index: Index, mask: Mask) -> object:
        return e.value(instruction, index, mask)

    return element


def emit_scatter(
    kernel: CpuKernel, root: Instruction | None = None, pointers: Mapping[Instruction, ir.Value] | None = None
) -> None:
    """Copy the operands (unless in place), then apply the updates one after the other, windows in vectors.

    A window that does not lie wholly inside the operand is skipped. ``root``: of a fusion on ``pointers``.
    """
    i = root or kernel.instruction
    pointers = kernel.pointers() if pointers is None else pointers
    count = len(i.operands) // 2
    e = kernel.emitter(pointers)
    for target, operand in zip(kernel.results, i.operands[:count], strict=True):
        _copy_unless_same(kernel, e, target, pointers[operand], operand.shape.nbytes)
    if 0 not in i.operands[-1].shape.dims and 0 not in i.operands[0].shape.dims:
        _scatter_all(kernel, i, e, pointers)
    e.finish()


def _width(i: Instruction) -> int:
    """Elements of the windows of a scatter along their last dimension."""
    window = i.attrs["update_window_dims"]
    return int(i.operands[-1].shape.dims[window[-1]]) if window else 1


def _most_stripes(i: Instruction) -> int:
    return _width(i) // _STRIPE if is_scalar_program(i.attrs["to_apply"]) else 1


def scatter_pieces(i: Instruction, tuning: Tuning = DEFAULT) -> int:
    """Into how many pieces the updates of a scatter are cut."""
    updates = i.operands[len(i.operands) // 2 + 1 :]
    return max(1, chunks(nbytes=3 * sum(u.shape.nbytes for u in updates), most=_most_stripes(i), tuning=tuning))


def _scatter_all(kernel: CpuKernel, i: Instruction, e: CpuEmitter, pointers: Mapping[Instruction, ir.Value]) -> None:
    """All updates; wide windows are cut across, so that every element sees its updates in their order."""
    count = len(i.operands) // 2
    wide = _width(i)
    most = _most_stripes(i)
    stripes = scatter_pieces(i, kernel.tuning)
    if most < 2 or stripes < 2:
        _Scatter(kernel, i, e, count).emit()
        return

    def emit(part: PhaseKernel) -> None:
        own = part.emitter({o: part.operands[kernel.operands.index(p)] for o, p in pointers.items()})
        b = own.entry.builder
        begin, end = ChunkSpan(stripes, part.begin, part.end).steps(b, most)
        last = b.icmp_unsigned("==", part.end, constant(I64, stripes))
        past = b.select(last, constant(I64, wide), b.mul(end, constant(I64, _STRIPE)))
        _Scatter(part, i, own, count, (b.mul(begin, constant(I64, _STRIPE)), past)).emit()
        own.finish()

    phase(kernel, e, stripes, emit)


class _Scatter:
    """The loops of one scatter: over update positions, then over the window of each."""

    def __init__(
        self,
        kernel: CpuKernel,
        i: Instruction,
        e: CpuEmitter,
        count: int,
        stripe: tuple[ir.Value, ir.Value] | None = None,
    ) -> None:
        a = i.attrs
        self.stripe = stripe
        self.e = e
        self.instruction = i
        self.results = kernel.results
        self.operands = i.operands[:count]
        self.indices = i.operands[count]
        self.updates = i.operands[count + 1 :]
        self.dims = self.operands[0].shape.dims
        shape = self.updates[0].shape
        self.window = tuple(a["update_window_dims"])
        self.batch = tuple(d for d in range(shape.rank) if d not in self.window)
        self.variables: dict[int, LoopVar] = {d: e.source.loop(n) for d, n in enumerate(shape.dims)}
        self.index: Index = tuple(Expr.of(self.variables[d]) for d in range(shape.rank))

    def emit(self) -> None:
        frame = self.e.entry
        opened: list[ForLoop | IfBlock] = []
        for d in self.batch:
            loop = ForLoop(frame, self.variables[d].size)
            self.e.bind(self.variables[d], Val((loop.index,), loop.frame))
            opened.append(loop)
            frame = loop.frame
        target, fits = self._target(frame)
        if fits is not None:
            branch = IfBlock(frame, fits.value)
            opened.append(branch)
            frame = branch.frame
        offset = linear(target, self.dims)
        self._windows(frame, offset)
        for block in reversed(opened):
            block.close()

    def _target(self, frame: Frame) -> tuple[Index, Val | None]:
        """The index that is written, and whether the whole window lies inside (None: always)."""
        e, a = self.e, self.instruction.attrs
        batch = [self.index[d] for d in self.batch]
        removed = {*a["inserted_window_dims"], *a.get("input_batching_dims", ())}
        window = iter(self.window)
        target: list[Expr] = []
        extent: list[int] = []
        for d in range(len(self.dims)):
            from_window = None if d in removed else next(window)
            target.append(Expr() if from_window is None else self.index[from_window])
            extent.append(1 if from_window is None else self.updates[0].shape.dims[from_window])
        fits: Val | None = None
        for component, d in enumerate(a["scatter_dims_to_operand_dims"]):
            at = start_position(batch, component, a["index_vector_dim"], self.indices.shape)
            begin = e.load_index(self.indices, at, (), 0, self.dims[d] - extent[d] + 1)
            target[d] = target[d] + begin
            inside = self._inside(frame, at, begin)
            fits = inside if fits is None else apply(lambda b, x, y: b.and_(x, y), [fits, inside], frame)
        pairs = zip(a.get("input_batching_dims", ()), a.get("scatter_indices_batching_dims", ()), strict=True)
        for d, from_dim in pairs:
            target[d] = batch[from_dim - (1 if from_dim > a["index_vector_dim"] else 0)]
        return tuple(target), fits

    def _inside(self, frame: Frame, at: Index, begin: Expr) -> Val:
        """Whether the start index was in range, so that clamping did not change it."""
        raw = self.e.value(self.indices, at)
        dtype = self.indices.shape.dtype

        def emit(b: ir.IRBuilder, x: ir.Value, clamped: ir.Value) -> ir.Value:
            if dtype.bits < 64:
                x = b.sext(x, I64) if dtype.kind == "signed" else b.zext(x, I64)
            return b.icmp_unsigned("==", x, clamped)

        return apply(emit, [raw, self.e.index(begin)], frame)

    def _windows(self, frame: Frame, offset: Expr) -> None:
        loops: list[ForLoop] = []
        for d in self.window[:-1]:
            loop = ForLoop(frame, self.variables[d].size)
            self.e.bind(self.variables[d], Val((loop.index,), loop.frame))
            loops.append(loop)
            frame = loop.frame
        if self.window:
            self._inner(frame, self.variables[self.window[-1]], offset)
        else:
            self._combine(frame, offset, 1, ())
        for loop in reversed(loops):
            loop.close()

    def _inner(self, frame: Frame, v: LoopVar, offset: Expr) -> None:
        e = self.e
        bits = element_bits(o.shape.dtype for o in self.operands)
        contiguous = offset.coefficient(v) == 1
        in_lanes = is_scalar_program(self.instruction.attrs["to_apply"])
        lanes = min(2 * e.vector_bits // bits, power_above(v.size)) if contiguous and in_lanes else 1
        if self.stripe is not None:
            self._stripe(frame, v, offset, min(lanes, _STRIPE), *self.stripe)
            return
        whole, rest = divmod(v.size, lanes)
        if whole:
            loop = ForLoop(frame, whole * lanes, lanes)
            e.bind(v, Val((loop.index,), loop.frame), lanes)
            self._combine(loop.frame, offset, lanes, ())
            loop.close()
        if rest:
            e.bind(v, Val((constant(I64, whole * lanes),), e.entry), lanes)
            self._combine(frame, offset, lanes, (Rest(Expr.of(v), 0, v.size),))

    def _stripe(self, frame: Frame, v: LoopVar, offset: Expr, lanes: int, begin: ir.Value, end: ir.Value) -> None:
        """Elements [begin, end) of a window; ``end`` ends a vector, or the window."""
        loop = ForLoop(frame, end, lanes, begin)
        self.e.bind(v, Val((loop.index,), loop.frame), lanes)
        mask = (Rest(Expr.of(v), 0, v.size),) if v.size % lanes else ()
        self._combine(loop.frame, offset, lanes, mask)
        loop.close()

    def _combine(self, frame: Frame, offset: Expr, lanes: int, mask: Mask) -> None:
        """Read what is there, combine with the updates, write back."""
        e = self.e
        new = [e.value(u, self.index, mask) for u in self.updates]
        at = e.split(offset)[0]
        holds = e.mask(mask)
        frame = deepest([*new, at] if holds is None else [*new, at, holds], frame)
        b = frame.builder
        m = None if holds is None else holds.wide(lanes)[0]
        shapes: list[Shape] = [o.shape for o in self.operands]
        old = [
            Val(memory.load(b, p, at.value, s.dtype, lanes, m), frame, lanes)
            for p, s in zip(self.results, shapes, strict=True)
        ]
        values = e.call(self.instruction.attrs["to_apply"], [*old, *new])
        for p, s, value in zip(self.results, shapes, values, strict=True):
            memory.store(b, value.wide(lanes), p, at.value, s.dtype, m)
