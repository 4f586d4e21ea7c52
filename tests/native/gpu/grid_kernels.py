"""Small kernels over `GridCode`: made for every target, run under emulation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from shardc.native.gpu.code import grid_code
from shardc.native.gpu.emulated.coroutines import (
    FORWARD,
    REVERSE,
    EmulatedModule,
    ThreadOrder,
    compile_emulated,
    load_emulated,
)
from shardc.native.gpu.emulated.coroutines import new_emulated_module as _new_emulated
from shardc.native.gpu.grid import GridCode
from shardc.native.gpu.runtime import LaunchShape
from shardc.native.gpu.target import gpu_target
from shardc.native.math.vector import F32, I32, I64, PTR, constant

__all__ = ["ORDERS", "Body", "Sketch", "at", "define", "emulated", "i32", "launch", "place_in_grid", "random_floats"]

Array = NDArray[Any]
#: What a thread does with the arrays.
Body = Callable[[GridCode, ir.IRBuilder, Sequence[ir.Value]], None]
ORDERS = (FORWARD, REVERSE, *(ThreadOrder.random(seed) for seed in range(1, 5)))


@dataclass(frozen=True)
class Sketch:
    """A kernel: how many arrays and threads it has, and its body."""

    name: str
    arrays: int
    threads: int
    body: Body
    readonly: Collection[int] = ()


def i32(value: int) -> ir.Constant:
    return constant(I32, value)


def at(b: ir.IRBuilder, array: ir.Value, index: ir.Value, t: ir.Type = F32) -> ir.Value:
    """The address of element ``index`` (i32)."""
    return b.gep(array, [b.zext(index, I64)], source_etype=t)


def place_in_grid(c: GridCode, b: ir.IRBuilder, threads: int) -> ir.Value:
    """This thread's number in a grid of one dimension."""
    return b.add(b.mul(c.block(b), i32(threads)), c.thread(b))


def define(module: ir.Module, code: GridCode, sketch: Sketch) -> None:
    """Add the kernel to a module, stack slots and all."""
    function = code.define(module, sketch.name, sketch.arrays, sketch.readonly, sketch.threads)
    pointers = code.pointers(function)
    entry, body = (ir.IRBuilder(function.append_basic_block(n)) for n in ("entry", "body"))
    slot = entry.alloca(PTR)
    start = body.block
    body.store(pointers[0], slot)
    sketch.body(code, body, [body.load(slot, typ=PTR), *pointers[1:]])
    code.enter(entry)
    entry.branch(start)
    code.leave(body)


def emulated(*sketches: Sketch) -> EmulatedModule:
    """The kernels, loaded."""
    module = _new_emulated("sketches")
    for sketch in sketches:
        define(module, grid_code(gpu_target("cuda-emulated")), sketch)
    return load_emulated(compile_emulated(module))


def launch(
    module: EmulatedModule,
    sketch: Sketch,
    arrays: Sequence[Array],
    blocks: int | tuple[int, int, int] = 1,
    shared_bytes: int = 0,
    order: ThreadOrder = FORWARD,
    device: int = 0,
) -> None:
    """Run a kernel on NumPy arrays, which begin at multiples of 16 bytes."""
    grid = (blocks, 1, 1) if isinstance(blocks, int) else blocks
    assert all(a.ctypes.data % 16 == 0 for a in arrays)
    shape = LaunchShape(grid, sketch.threads, shared_bytes)
    module.launch(sketch.name, shape, [a.ctypes.data for a in arrays], device, order)


def random_floats(count: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(count).astype(np.float32)
