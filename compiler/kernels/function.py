"""The general way to make a kernel: a loop nest over the elements of its results."""

from __future__ import annotations

from collections.abc import Sequence

from shardc.compiler.kernels.affine import Mask
from shardc.compiler.kernels.body import Kernel
from shardc.compiler.kernels.elements import Element, Elements, Index
from shardc.compiler.kernels.mapping import Output, Span, emit_map
from shardc.compiler.kernels.parallel import map_chunks, phase
from shardc.compiler.kernels.rules import RULES
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir import Computation, Instruction

__all__ = ["Kernel", "fused_kernel", "loop_kernel"]


def loop_kernel(kernel: Kernel) -> None:
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


def fused_kernel(kernel: Kernel, computation: Computation) -> None:
    """A kernel that evaluates ``computation`` on the instruction's operands."""
    root = computation.root
    roots = root.operands if root.opcode == "tuple" else (root,)

    def element(i: Instruction, part: int | None) -> Element:
        def get(e: Elements, index: Index, mask: Mask) -> object:
            value = e.value(i, index, mask)
            return value if part is None else value[part]

        return get

    elements = [
        element(r, part if r.shape.is_tuple else None) for r in roots for part, _ in enumerate(r.shape.leaves())
    ]
    _maps(kernel, computation.parameters, elements)


def _maps(kernel: Kernel, leaves: Sequence[Instruction], elements: Sequence[Element]) -> None:
    """Loop nests that fill the results with ``elements``, which read ``leaves``; in chunks if there is much to do."""
    count = map_chunks(kernel.instruction)

    def fill(k: Kernel, span: Span | None) -> None:
        e = k.emitter(dict(zip(leaves, k.operands, strict=True)))
        outputs = [Output(p, s, f) for p, s, f in zip(k.results, k.result_shapes, elements, strict=True)]
        start = 0
        for end in range(1, len(outputs) + 1):  # one loop nest for each run of results of the same dimensions
            if end == len(outputs) or outputs[end].shape.dims != outputs[start].shape.dims:
                emit_map(e, outputs[start].shape.dims, outputs[start:end], span=span)
                start = end
        e.finish()

    if count == 1:
        fill(kernel, None)
        return
    e = kernel.emitter()
    phase(kernel, e, count, lambda part: fill(part, Span(count, part.begin, part.end)))
    e.finish()
