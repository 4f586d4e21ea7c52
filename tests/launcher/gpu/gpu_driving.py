"""Drivers for tests: a program on an emulated GPU whose streams and threads run in a drawn order, and on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardc import Program
from shardc.collectives.in_process.transport import LocalTransport
from shardc.compiler.compile import compile_module
from shardc.compiler.executable import Executable
from shardc.compiler.load.step import load_step
from shardc.hlo.config import Config
from shardc.hlo.ir.ir import Module
from shardc.launcher.arrays.array import Array
from shardc.launcher.driver.driver import Driver
from shardc.launcher.gpu.driver import GpuDriver
from shardc.launcher.gpu.memory import GpuContext
from shardc.native.gpu.emulated.runtime import EmulatedRuntime

CONFIG = Config()

#: tanh of x[64], as often as START, which defines the s32 ``start``, says.
WHILE = """HloModule while

body {
  p = (s32[], f32[64]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  x = f32[64] get-tuple-element(p), index=1
  one = s32[] constant(1)
  m = s32[] subtract(n, one)
  t = f32[64] tanh(x)
  ROOT r = (s32[], f32[64]) tuple(m, t)
}

condition {
  p = (s32[], f32[64]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  zero = s32[] constant(0)
  ROOT c = pred[] compare(n, zero), direction=GT
}

ENTRY main {
  n = s32[] parameter(0)
  x = f32[64] parameter(1)
  START
  init = (s32[], f32[64]) tuple(start, x)
  w = (s32[], f32[64]) while(init), condition=condition, body=body
  ROOT y = f32[64] get-tuple-element(w), index=1
}
"""


def module_of(program: Program | Module) -> Module:
    """The per-device program."""
    return program if isinstance(program, Module) else program.partition().compiled_module


def gpu_executable(program: Program | Module, config: Config = CONFIG) -> Executable:
    return compile_module(module_of(program), config, target="cuda-emulated")


def gpu_driver(
    program: Program | Module | Executable, seed: int | None = 1, *, runtime: EmulatedRuntime | None = None
) -> GpuDriver:
    """``program`` on a GPU of its own."""
    executable = program if isinstance(program, Executable) else gpu_executable(program)
    context = GpuContext(runtime or EmulatedRuntime(seed=seed))
    return GpuDriver(executable, context, LocalTransport(), CONFIG, array_type=Array)


def cpu_driver(program: Program | Module) -> Driver:
    executable = compile_module(module_of(program), CONFIG)
    step = load_step(executable)
    return Driver(executable, step, LocalTransport(), CONFIG, step.pool, array_type=Array)


def values(results: Sequence[Any]) -> list[np.ndarray]:
    return [np.asarray(r) for r in results]


class Counting(EmulatedRuntime):
    """Counts copies over the bus, launches of kernels and launches of graphs."""

    def __init__(self, seed: int | None = 1) -> None:
        super().__init__(seed=seed)
        self.copies = self.launches = self.waits = 0

    def copy(self, to: int, source: int, nbytes: int, stream: Any) -> None:
        self.copies += 1
        super().copy(to, source, nbytes, stream)

    def launch(self, kernel: Any, shape: Any, pointers: Sequence[int], device: int, stream: Any) -> None:
        self.launches += 1
        super().launch(kernel, shape, pointers, device, stream)

    def synchronize(self, stream: Any = None) -> None:
        self.waits += 1
        super().synchronize(stream)
