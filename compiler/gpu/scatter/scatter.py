"""scatter: windows of updates combined into an array, at places read at run time.

Dimensions of the updates are *positions* (which window, and where in it along dimensions that windows start anywhere
in) or *columns* (the others). Two updates meet in one element only when they are in one column and their positions
name one *row*, so there are three ways:

- no two can meet (there is one position, or the program says so): every thread combines its elements;
- they can, but their order changes no bit of the result (or the user does not care): atomically;
- else in the order of positions, each row by one block (`scatter_ordered.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardc.compiler.elements import memory
from shardc.compiler.elements.frames import Frame, IfBlock, Val
from shardc.compiler.elements.scalar_programs import is_scalar_program
from shardc.compiler.gpu.function import GpuKernel
from shardc.compiler.gpu.maps.loop import GridMap, emit_maps
from shardc.compiler.gpu.maps.maps import Found, GridOutput, PlannedMap, is_computed_by_rules, value_of
from shardc.compiler.gpu.scatter.atomics import atomic_combine, has_atomic
from shardc.compiler.gpu.scatter.ordered import emit_ordered
from shardc.compiler.gpu.scatter.places import ScatterPlaces
from shardc.hlo.ir.ir import Computation
from shardc.hlo.ir.reducers import any_order, identity_of

__all__ = ["emit_scatter", "takes_scatter"]


def takes_scatter(kernel: GpuKernel) -> bool:
    """A scatter whose reducer is arithmetic, with operands that element rules compute."""
    root = kernel.computation.root
    if root.opcode != "scatter" or not is_scalar_program(root.attrs["to_apply"]):
        return False
    inside = [i for i in kernel.computation if i is not root]
    return is_computed_by_rules(Computation("operands", inside, root))


def emit_scatter(kernel: GpuKernel) -> None:
    """Copy the operands (unless in place), then apply the updates; windows that reach outside are left out."""
    root = kernel.computation.root
    places = ScatterPlaces(root)
    leaves = kernel.leaves()
    copied = [
        GridOutput(result, shape, value_of(operand))
        for result, shape, operand in zip(kernel.results, kernel.result_shapes, places.operands, strict=True)
        if not kernel.in_place(operand)
    ]
    emit_maps(kernel, leaves, copied)
    if not places.size or 0 in places.dims:
        return
    if places.positions == 1 or places.disjoint:
        GridMap(_ScatterMap(kernel, places, atomic=False)).emit()
    elif _atomic(kernel, places):
        GridMap(_ScatterMap(kernel, places, atomic=True)).emit()
    else:
        emit_ordered(kernel, places)


def _atomic(kernel: GpuKernel, places: ScatterPlaces) -> bool:
    """Whether updates may be combined in any order, by one atomic operation each."""
    reducer, dtype = places.reducer, places.operands[0].shape.dtype
    if len(places.operands) != 1 or not has_atomic(dtype):
        return False
    return any_order(reducer, dtype) or (not kernel.tuning.deterministic and identity_of(reducer, dtype) is not None)


@dataclass(frozen=True, slots=True)
class _Update(Found):
    """An update of one element. ``fits`` says whether its window lies inside. None: always."""

    fits: Val | None


class _ScatterMap(PlannedMap):
    """A map over the elements of the updates, which combines instead of writing."""

    def __init__(self, kernel: GpuKernel, places: ScatterPlaces, atomic: bool) -> None:
        outputs = [
            GridOutput(r, o.shape, value_of(u), places.target, places.update_dims)
            for r, o, u in zip(kernel.results, places.operands, places.updates, strict=True)
        ]
        super().__init__(kernel, kernel.leaves(), outputs)
        self.places, self.atomic = places, atomic

    @property
    def plain(self) -> bool:
        """Vectors only along columns, of updates that do not meet."""
        rows = [v for d in self.places.position_dims for v in self.space.index[d].variables()]
        inner = self.groups[-1] if self.groups else []
        return super().plain and not self.atomic and not any(v in rows for v in inner)

    def evaluate(self, frame: Frame) -> list[Found]:
        fits = self.places.fits(self.e, self.space.index, frame)
        return [_Update(x.frame, x.value, x.at, x.lanes, fits) for x in super().evaluate(frame)]

    def store(self, found: Sequence[Found]) -> None:
        first = found[0]
        assert isinstance(first, _Update)
        branch = None if first.fits is None else IfBlock(first.frame, first.fits.value)
        frame = first.frame if branch is None else branch.frame
        if self.atomic:
            place = self.function.pointer(self.outputs[0].array)
            atomic_combine(
                self.e, frame, self.places.reducer, place, first.at, first.value, self.outputs[0].shape.dtype
            )
        else:
            self._combine(frame, found)
        if branch is not None:
            branch.close()

    def _combine(self, frame: Frame, found: Sequence[Found]) -> None:
        b = frame.builder
        pointers = [self.function.pointer(o.array) for o in self.outputs]
        dtypes = [o.shape.dtype for o in self.outputs]
        old = [
            Val(memory.load(b, p, x.at.value, d, x.lanes), frame, x.lanes)
            for p, d, x in zip(pointers, dtypes, found, strict=True)
        ]
        values = self.e.call(self.places.reducer, [*old, *(x.value for x in found)])
        for p, d, x, value in zip(pointers, dtypes, found, values, strict=True):
            memory.store(b, value.wide(x.lanes), p, x.at.value, d, None)
