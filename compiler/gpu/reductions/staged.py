"""Kernels with sums inside that a map would do again and again: those sums are launches of their own.

A map whose elements need a fold (a reduction, a product) does it in one thread, for each element anew. Where the fold
is long, or many elements need the same one, its results go to scratch memory first, made by whoever knows how to reduce
or multiply; what is left is a map that reads them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from shardc.compiler.elements.affine import LoopVar, VarSource
from shardc.compiler.elements.elements import Elements, FoldUse, bases
from shardc.compiler.elements.folds import FOLDS
from shardc.compiler.elements.loop_space import plan_space
from shardc.compiler.elements.results import elements_of
from shardc.compiler.elements.rules import RULES
from shardc.compiler.gpu.function import GpuKernel
from shardc.compiler.gpu.launches import LaunchArray
from shardc.compiler.gpu.maps.maps import is_computed_by_rules
from shardc.compiler.lower.fuse.row_space import roots_of
from shardc.hlo.ir.ir import Computation, Instruction

__all__ = ["emit_staged", "folds_to_stage", "takes_staged"]

#: Emits a part of a kernel by the first kernel emitter that takes it; they are listed above this module.
EmitPart = Callable[[GpuKernel], None]

#: Elements of a fold from which on a thread does not do it alone, and those where many threads would do the same.
_LONG, _REPEATED = 64, 4
_PRODUCTS = ("dot", "convolution")


def takes_staged(kernel: GpuKernel) -> bool:
    """Kernels that element rules compute, with folds that had better be launches of their own."""
    return is_computed_by_rules(kernel.computation) and bool(folds_to_stage(kernel.computation))


def folds_to_stage(computation: Computation) -> list[Instruction]:
    """The folds to do beforehand, in order. What a result itself is cannot be done earlier."""
    inside = [i for i in computation if i.opcode in FOLDS]
    roots = roots_of(computation)
    if not any(i not in roots for i in inside):
        return []
    chosen: set[Instruction] = set()
    for root, element in zip(
        [r for r in roots for _ in r.shape.leaves()], elements_of(computation), strict=True
    ):  # fmt: skip
        dims = root.shape.dims if root.shape.is_array else next(iter(root.shape.leaves())).dims
        elements = Elements(VarSource(), computation.parameters, RULES)
        _, recorder = plan_space(elements, dims, [element])
        chosen.update(use.key for use in recorder.folds if _worth(use, math.prod(dims)))
    return [i for i in inside if i in chosen and i not in roots]


def _worth(use: FoldUse, elements: int) -> bool:
    """Whether a fold is long, a product, or the same for several of the ``elements`` that are computed."""
    length = math.prod(use.fold.sizes)
    moved = {v for x in use.index for v in bases(x) if isinstance(v, LoopVar)}
    repeated = use.key.opcode in _PRODUCTS or 2 * math.prod(v.size for v in moved) <= elements
    return length >= _LONG or (length >= _REPEATED and repeated)


def emit_staged(kernel: GpuKernel, emit_part: EmitPart) -> None:
    """The folds first, each with what it is made of, then what is left."""
    stages = _StagedRewrite(kernel, emit_part)
    root = stages.rewritten(set(folds_to_stage(kernel.computation)))
    stages.launch(root, kernel.results)


class _StagedRewrite:
    """A computation being rewritten so that folds are parameters, and the launches that fill those."""

    def __init__(self, kernel: GpuKernel, emit_part: EmitPart) -> None:
        self.kernel, self.emit_part = kernel, emit_part
        #: Where the parameters of the rewritten computation lie.
        self.leaves: dict[Instruction, LaunchArray] = dict(kernel.leaves())

    def rewritten(self, folds: set[Instruction]) -> Instruction:
        """The root of the computation that reads ``folds``."""
        now: dict[Instruction, Instruction] = {}
        parts: dict[Instruction, list[Instruction]] = {}
        for i in self.kernel.computation:
            if i.opcode == "get-tuple-element" and i.operands[0] in parts:
                now[i] = parts[i.operands[0]][i.attrs["index"]]
                continue
            again = i if not i.operands else i.replace(operands=tuple(now.get(o, o) for o in i.operands))
            if i in folds:
                parts[i] = self._made(again)
                again = parts[i][0] if i.shape.is_array else again
            now[i] = again
        return now[self.kernel.computation.root]

    def _made(self, fold: Instruction) -> list[Instruction]:
        """Launch a fold; parameters that stand for its results."""
        results = [self.kernel.scratch(s.nbytes) for s in fold.shape.leaves()]
        self.launch(fold, results)
        made = []
        for shape, place in zip(fold.shape.leaves(), results, strict=True):
            parameter = Instruction("parameter", shape, attrs={"index": len(self.leaves)})
            self.leaves[parameter] = place
            made.append(parameter)
        return made

    def launch(self, root: Instruction, results: Sequence[LaunchArray]) -> None:
        """Launch ``root`` with what it is made of, down to the leaves."""
        inside = _inside(root, self.leaves)
        used = [i for i in inside if i in self.leaves]
        self.emit_part(self.kernel.part(_instruction(root, inside, used), [self.leaves[i] for i in used], results))


def _inside(root: Instruction, leaves: dict[Instruction, LaunchArray]) -> list[Instruction]:
    """What ``root`` is made of, operands first, down to ``leaves``."""
    found: dict[Instruction, None] = {}
    stack = [(root, False)]
    while stack:
        i, done = stack.pop()
        if i in found:
            continue
        if done or i in leaves:
            found[i] = None
        else:
            stack.append((i, True))
            stack += [(o, False) for o in reversed(i.operands)]
    return list(found)


def _instruction(root: Instruction, inside: Sequence[Instruction], used: Sequence[Instruction]) -> Instruction:
    """``root`` with what it is made of as a kernel on ``used``."""
    now: dict[Instruction, Instruction] = {}
    for n, i in enumerate(used):
        now[i] = Instruction("parameter", i.shape, attrs={"index": n})
    for i in inside:
        if i not in now:
            now[i] = i.replace(operands=tuple(now[o] for o in i.operands))
    if len(inside) == len(used) + 1 and [now[i] for i in used] == list(now[root].operands):
        return now[root]
    computation = Computation("fold", now.values(), now[root])
    return Instruction("fusion", root.shape, tuple(now[i] for i in used), {"kind": "kLoop", "calls": computation})
