"""Running totals (reduce-window whose windows reach from one end to their own position): what all ways share.

A reducer of one op (a sum, a maximum) is regrouped: threads total their own elements first. Any other is applied from
the first element on, one after the other, with the rounding that it has then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from shardc.compiler.elements import memory
from shardc.compiler.elements.fold_emitter import round_element
from shardc.compiler.elements.folds import find_running_dimension
from shardc.compiler.elements.frames import Frame, Val
from shardc.compiler.elements.scalar_programs import is_scalar_program
from shardc.compiler.gpu.function import GpuEmitter, GpuFunction, GpuKernel
from shardc.compiler.gpu.launches import LaunchArray
from shardc.compiler.gpu.reductions.accumulate import Reducer, load_words, store_words
from shardc.hlo.ir.reducers import identity_of
from shardc.native.math.vector import I32, I64, constant, undef

__all__ = ["Scan", "ScanFunction", "lanes_of_value", "scan_of", "vector_of"]


@dataclass(frozen=True, slots=True)
class Scan:
    """Totals along the middle of ``[outer, length, inner]``; ``free``: elements may be grouped in any way."""

    reducer: Reducer
    outer: int
    length: int
    inner: int
    backwards: bool
    free: bool

    @property
    def count(self) -> int:
        """How many arrays run along together."""
        return len(self.reducer.dtypes)

    def lanes(self, along: int) -> int:
        """Neighbours that a thread takes at once, of ``along`` in memory: 16 bytes of the widest array."""
        widest = max(d.nbytes for d in self.reducer.dtypes)
        return max(1, min(16 // min(widest, 16), 8, along & -along))


def scan_of(kernel: GpuKernel) -> Scan | None:
    """What a kernel totals; None where it does something else."""
    i = kernel.instruction
    if i.opcode != "reduce-window" or not is_scalar_program(i.attrs["to_apply"]):
        return None
    found = find_running_dimension(i)
    count = len(i.operands) // 2
    dtypes = tuple(o.shape.dtype for o in i.operands[:count])
    free = count == 1 and identity_of(i.attrs["to_apply"], dtypes[0]) is not None
    if found is None or (found[1] and not free):
        return None
    d, backwards = found
    dims = i.operands[0].shape.dims
    reducer = Reducer(i.attrs["to_apply"], dtypes, wide=free)
    return Scan(reducer, math.prod(dims[:d]), dims[d], math.prod(dims[d + 1 :]), backwards, free)


@dataclass
class ScanFunction:
    """One launch's function. It reads the operands or, as accumulators, ``source``; it writes the results, or
    (``target``) accumulators. Totals start from the initial values, or from those in ``carry`` of the chunk before.
    """

    kernel: GpuKernel
    scan: Scan
    threads: int
    source: Sequence[LaunchArray] = ()
    target: Sequence[LaunchArray] = ()
    carry: Sequence[LaunchArray] = ()

    def __post_init__(self) -> None:
        kernel = self.kernel
        results = () if self.target else kernel.results
        arrays = [*kernel.operands, *self.source, *self.target, *self.carry, *results]
        self.function: GpuFunction = kernel.function(arrays, self.threads)
        self.e: GpuEmitter = self.function.emitter({})

    def _pointers(self, arrays: Sequence[LaunchArray]) -> list[ir.Value]:
        return [self.function.pointer(a) for a in arrays]

    def load(self, frame: Frame, at: ir.Value, lanes: int) -> list[Val]:
        """``lanes`` neighbours from element ``at`` (i64) on."""
        if self.source:
            return load_words(frame, self.scan.reducer.dtypes, self._pointers(self.source), at, lanes)
        pairs = zip(self._pointers(self.kernel.operands[: self.scan.count]), self.scan.reducer.dtypes, strict=True)
        return [Val(memory.load(frame.builder, p, at, d, lanes), frame, lanes) for p, d in pairs]

    def store(self, frame: Frame, values: Sequence[Val], at: ir.Value, lanes: int) -> None:
        """Write totals; those of narrow floats are rounded now."""
        if self.target:
            store_words(frame.builder, values, self._pointers(self.target), at, lanes)
            return
        places = zip(values, self._pointers(self.kernel.results), self.scan.reducer.dtypes, strict=True)
        for value, pointer, dtype in places:
            memory.store(frame.builder, round_element(self.e, value, dtype).wide(lanes), pointer, at, dtype, None)

    def neutral(self) -> list[Val]:
        return [self.e.constant(self.scan.reducer.neutral, self.scan.reducer.dtypes[0])]

    def start(self, frame: Frame, first: ir.Value | None, before: ir.Value, lanes: int) -> list[Val]:
        """What totals start from: the initial values where i1 ``first`` holds (None: it does), else those of the chunk
        before, at element ``before`` of ``carry``."""
        b, dtypes = frame.builder, self.scan.reducer.dtypes
        inits = zip(self._pointers(self.kernel.operands[self.scan.count :]), dtypes, strict=True)
        values = [Val(memory.load(b, p, constant(I64, 0), d, 1), frame) for p, d in inits]
        if first is None or not self.carry:
            return values
        safe = b.select(first, constant(I64, 0), before)
        carried = load_words(frame, dtypes, self._pointers(self.carry), safe, lanes)
        return [self.select(frame, first, x, y, lanes) for x, y in zip(values, carried, strict=True)]

    def select(self, frame: Frame, choice: ir.Value, yes: Val, no: Val, lanes: int = 1) -> Val:
        pairs = zip(yes.wide(lanes), no.wide(lanes), strict=True)
        return Val(tuple(frame.builder.select(choice, x, y) for x, y in pairs), frame, lanes)

    def finish(self, grid: Sequence[int], shared_bytes: int = 0) -> None:
        self.e.finish()
        self.kernel.launch(self.function, grid, shared_bytes)


def lanes_of_value(frame: Frame, value: Val, lanes: int, *, backwards: bool = False) -> list[Val]:
    """Each lane by itself, the last one first where it goes ``backwards``."""
    if lanes == 1:
        return [value]
    order = range(lanes - 1, -1, -1) if backwards else range(lanes)
    b = frame.builder
    return [Val(tuple(b.extract_element(p, constant(I32, k)) for p in value.parts), frame) for k in order]


def vector_of(frame: Frame, values: Sequence[Val], *, backwards: bool = False) -> Val:
    """The lanes put together again."""
    if len(values) == 1:
        return values[0]
    order = list(reversed(values)) if backwards else list(values)
    b, lanes = frame.builder, len(values)
    parts = []
    for number, part in enumerate(order[0].parts):
        wide: ir.Value = undef(ir.VectorType(part.type, lanes))
        for k, v in enumerate(order):
            wide = b.insert_element(wide, v.parts[number], constant(I32, k))
        parts.append(wide)
    return Val(tuple(parts), frame, lanes)
