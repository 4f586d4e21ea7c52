"""The general way to make a kernel: a loop nest over the elements of its results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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

    _maps(kernel, i.operands, [element(n) for n, _ in enumerate(kernel.results)])


def emit_fusion(kernel: CpuKernel, computation: Computation) -> None:
    """A kernel that evaluates ``computation`` on the instruction's operands."""
    _maps(kernel, computation.parameters, elements_of(computation))


def _maps(kernel: CpuKernel, leaves: Sequence[Instruction], elements: Sequence[Element]) -> None:
    """Loop nests that fill the results with ``elements``, which read ``leaves``; in chunks if there is much to do."""
    count = map_chunks(kernel.instruction, kernel.tuning) if kernel.count is None else 1

    def fill(k: CpuKernel, e: CpuEmitter, span: ChunkSpan | None) -> None:
        for run in _nests(k, elements):
            emit_map(e, run[0].shape.dims, run, span=span, count=k.count)
        e.finish()

    def emit(part: PhaseKernel) -> None:
        e = part.emitter(dict(zip(leaves, part.operands, strict=True)))
        fill(part, e, ChunkSpan(count, part.begin, part.end))

    e = kernel.emitter(dict(zip(leaves, kernel.operands, strict=True)))
    if count == 1 or not all(can_cut(e, run[0].shape.dims, run, count) for run in _nests(kernel, elements)):
        fill(kernel, e, None)
        return
    phase(kernel, e, count, emit)
    e.finish()


def _nests(kernel: CpuKernel, elements: Sequence[Element]) -> Iterator[list[MapOutput]]:
    """Runs of results of the same dimensions, each of which one loop nest fills."""
    streamed = kernel.tuning.streamed
    places = zip(kernel.results, kernel.result_shapes, elements, strict=True)
    outputs = [MapOutput(p, s, f, streamed=streamed) for p, s, f in places]
    for _, run in groupby(outputs, key=lambda o: o.shape.dims):
        yield list(run)
