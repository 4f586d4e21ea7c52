"""Trials: kernels and whole steps run on random data, to see which of several is fastest."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.compiler.emit.native_kernel import emit_kernel
from shardc.compiler.executable import ARENA_HEADER, Executable
from shardc.compiler.load.step import STEP, aligned_block, pointer_table
from shardc.compiler.lower.fuse.fusion_rules import new_part
from shardc.compiler.lower.lowered import KernelStep
from shardc.compiler.tuning import Tuning
from shardc.hlo.ir.types import Shape
from shardc.native.llvm.jit import Loaded, compile_ir, load_object, new_module
from shardc.native.llvm.target import Target
from shardc.native.threads.pool import PARALLEL, Pool

__all__ = ["KernelTrial", "StepTrial", "compare"]

#: Rounds of a comparison, and the seconds that each side runs in a round at least.
_ROUNDS, _SPAN = 7, 1e-3
#: Random elements that large arrays repeat.
_DRAWN = 1 << 16


def compare(runs: Sequence[Callable[[], None]], deadline: float) -> list[float]:
    """Seconds of each of ``runs``: they take turns, and of all turns the best counts."""
    for run in runs:  # memory is touched, sleepers are awake
        run()
    start = time.perf_counter()
    runs[0]()
    repeat = max(1, int(_SPAN / max(time.perf_counter() - start, 1e-7)))
    best = [float("inf")] * len(runs)
    for number in range(_ROUNDS):
        for n, run in enumerate(runs):
            start = time.perf_counter()
            for _ in range(repeat):
                run()
            best[n] = min(best[n], (time.perf_counter() - start) / repeat)
        if number >= 2 and time.monotonic() >= deadline:
            break
    return best


class KernelTrial:
    """One kernel of a program, compiled with any tuning, on the same random operands."""

    def __init__(self, step: KernelStep, target: Target, pool: Pool) -> None:
        self._instruction = step.instruction
        self._target = target
        self._pool = pool
        rng = np.random.default_rng(0)
        shapes = [s for o in step.instruction.operands for s in o.shape.leaves()]
        self._operands = [_random(s, rng) for s in shapes]
        self._results = [aligned_block(s.nbytes) for s in step.instruction.shape.leaves()]
        if new_part(step.instruction) is not None:
            self._results[0] = self._operands[step.in_place[0][1]]
        self._texts: dict[Tuning, str] = {}
        self._loaded: dict[str, Loaded] = {}

    def differs(self, one: Tuning, other: Tuning) -> bool:
        """Whether the two tunings lead to different code of the kernel."""
        return self._text(one) != self._text(other)

    def _text(self, tuning: Tuning) -> str:
        if tuning not in self._texts:
            module = new_module("trial", self._target)
            emit_kernel(module, self._instruction, "kernel", self._target, tuning)
            self._texts[tuning] = str(module)
        return self._texts[tuning]

    def runner(self, tuning: Tuning) -> Callable[[], None]:
        """Runs the kernel once."""
        text = self._text(tuning)
        if text not in self._loaded:
            symbols = {PARALLEL: self._pool.address(PARALLEL)}
            self._loaded[text] = load_object(compile_ir(text, self._target), ["kernel"], symbols)
        blocks = [*self._operands, *self._results]
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(blocks), ctypes.c_int32)
        function = kind(self._loaded[text].address("kernel"))
        pointers = [b.ctypes.data for b in blocks]
        return lambda: function(*pointers, 0)


class StepTrial:
    """A whole step of a program for one device without collectives, on random arguments."""

    def __init__(self, executable: Executable, pool: Pool) -> None:
        rng = np.random.default_rng(0)
        self._arguments = [_random(a.local_shape, rng) for a in executable.arguments]
        self._results = [aligned_block(r.local_shape.nbytes) for r in executable.results]
        self._constants = aligned_block(len(executable.constants))
        self._constants[:] = np.frombuffer(executable.constants, np.uint8)
        self._arena = aligned_block(max(executable.arena_bytes, ARENA_HEADER))
        symbols = {PARALLEL: pool.address(PARALLEL)}
        self._loaded = load_object(executable.objects, [executable.symbol], symbols)
        self._step = STEP(self._loaded.address(executable.symbol))
        self._tables = [pointer_table(self._arguments), pointer_table(self._results)]

    def run(self) -> None:
        """One step; it may end early at a check, which random data fail."""
        self._arena[:ARENA_HEADER] = 0
        arguments, results = self._tables
        self._step(self._arena.ctypes.data, arguments, results, self._constants.ctypes.data, 0)


def _random(shape: Shape, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Numbers of everyday size; small whole ones for integers, which may be places in something."""
    block = aligned_block(shape.nbytes)
    dtype, count = shape.dtype, min(shape.size, _DRAWN)
    drawn: NDArray[Any]
    if dtype.kind == "pred" or dtype.is_integer:
        drawn = rng.integers(0, 2, count)
    elif dtype.is_complex:
        drawn = rng.standard_normal(count) + 1j * rng.standard_normal(count)
    else:
        drawn = rng.standard_normal(count)
    if count:
        block.view(dtype.numpy)[:] = np.resize(drawn.astype(dtype.numpy), shape.size)
    return block
