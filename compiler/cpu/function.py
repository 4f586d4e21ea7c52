"""The general way to make a kernel: a loop nest over the elements of its results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from shardc.compiler.cpu.body import CpuKernel
from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.cpu.loops.mapping import can_cut, emit_map
from shardc.compiler.cpu.loops.outputs import MapOutput
from shardc.compiler.cpu.parallel import ChunkSpan, PhaseKernel, map_chunks, phase
from shardc.compiler.elements.affine import Mask
from shardc.compiler.elements.elements import Element, Elements, Index
from shardc.compiler.elements.results import elements_of
from shardc.compiler.elements.rules import RULES
from shardc.compiler.lower.fuse.fusion_rules import is_stack
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.ir import Computation, Instruction

__all__ = ["emit_elements", "emit_fusion"]


def emit_elements(kernel: CpuKernel) -> None:
    """Any op with an element rule: a map over its result."""
    i = kernel.instruction
    if i.opcode not in RULES:
        raise UnsupportedError(f"{i.opcode} has no CPU code", where=f"%{i.name}")

    def element(part: int) -> Element:
        def get(e: Elements, index: Index, mask: Mask) -> object:
            value = RULES[i.opcode](e, i, index, mask) if not i.shape.is_tuple else e.value(i, index, mask)
            return value[part] if isinstance(value, list) else value

        return get

    _maps(kernel, i.operands, _whole([element(n) for n, _ in enumerate(kernel.results)]))


def emit_fusion(kernel: CpuKernel, computation: Computation) -> None:
    """A kernel that evaluates ``computation`` on the instruction's operands."""
    stacked = is_stack(computation.root)
    _maps(kernel, computation.parameters, (_stacked(computation.root) if stacked else _whole(elements_of(computation))))


def _maps(kernel: CpuKernel, leaves: Sequence[Instruction], outputs: Callable[[CpuKernel], list[MapOutput]]) -> None:
    """Loop nests that fill the ``outputs`` of a kernel or a phase of it, whose elements read ``leaves``; in chunks if
    there is much to do."""
    count = map_chunks(kernel.instruction, kernel.tuning) if kernel.count is None else 1

    def fill(k: CpuKernel, e: CpuEmitter, span: ChunkSpan | None) -> None:
        for run in _nests(outputs(k)):
            emit_map(e, run[0].dims, run, span=span, count=k.count)
        e.finish()

    def emit(part: PhaseKernel) -> None:
        e = part.emitter(dict(zip(leaves, part.operands, strict=True)))
        fill(part, e, ChunkSpan(count, part.begin, part.end))

    e = kernel.emitter(dict(zip(leaves, kernel.operands, strict=True)))
    if count == 1 or not all(can_cut(e, run[0].dims, run, count) for run in _nests(outputs(kernel))):
        fill(kernel, e, None)
        return
    phase(kernel, e, count, emit)
    e.finish()


def _whole(elements: Sequence[Element]) -> Callable[[CpuKernel], list[MapOutput]]:
    """Every result filled with its elements."""

    def outputs(kernel: CpuKernel) -> list[MapOutput]:
        places = zip(kernel.results, kernel.result_shapes, elements, strict=True)
        return [MapOutput(p, s, f, streamed=kernel.tuning.streamed) for p, s, f in places]

    return outputs


def _stacked(root: Instruction) -> Callable[[CpuKernel], list[MapOutput]]:
    """Every part of a stack, at its place in the one result."""
    (d,) = root.attrs["dimensions"]

    def output(kernel: CpuKernel, n: int, part: Instruction) -> MapOutput:
        def element(e: Elements, index: Index, mask: Mask) -> object:
            return e.value(part, index, mask)

        def place(e: Elements, index: Index) -> Index:
            return (*index[:d], index[d] + n * part.shape.dims[d], *index[d + 1 :])

        (pointer,), (shape,) = kernel.results, kernel.result_shapes
        return MapOutput(pointer, shape, element, place, kernel.tuning.streamed, part.shape.dims)

    return lambda kernel: [output(kernel, n, part) for n, part in enumerate(root.operands)]


def _nests(outputs: Sequence[MapOutput]) -> Iterator[list[MapOutput]]:
    """Runs of outputs of the same dimensions, each of which one loop nest fills."""
    for _, run in groupby(outputs, key=lambda o: o.dims):
        yield list(run)
