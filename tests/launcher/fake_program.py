"""A hand-written step behind the native ABI: ``s = sum(x); return x * s, w + s`` over x sharded on axis ``m``."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np

from shardc.collectives.call.call import BufferRef, CollectiveCall, CollectiveOperand
from shardc.compiler.executable import ArraySpec, Executable
from shardc.hlo.ir.groups import AxisGroups
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, Sharding
from shardc.hlo.ir.types import DTYPES, array_shape
from shardc.launcher.driver.driver import STEP_TYPE


def program(devices: int = 4, n: int = 10, donated: tuple[int, ...] = ()) -> tuple[Executable, Any]:
    """The executable (without machine code) and its step."""
    mesh = Mesh({"m": devices})
    split, whole = Sharding.of(mesh, "m"), Sharding.of(mesh, None)
    local = -(-n // devices)
    x = ArraySpec("x", array_shape("f32", n), array_shape("f32", local), split)
    w = ArraySpec("w", array_shape("f32", 3), array_shape("f32", 3), whole)
    operand = CollectiveOperand(BufferRef("arena", 0, 64, 4), BufferRef("arena", 0, 128, 4), DTYPES["f32"], 1)
    call = CollectiveCall(0, "all-reduce", "add", AxisGroups(mesh, (AxisRef("m"),)), (operand,), "ar", "fake.py:3")
    executable = Executable(
        "fake",
        "none",
        b"",
        "step",
        devices,
        (x, w),
        (replace(x, name="y"), replace(w, name="v")),
        192,
        b"",
        (call,),
        donated,
    )

    def floats(address: int, count: int) -> np.ndarray:
        return np.ctypeslib.as_array((ctypes.c_float * count).from_address(address))

    def step(arena: int, arguments: Any, results: Any, constants: int, device: int) -> int:
        state = ctypes.c_int32.from_address(arena)
        x_local = floats(arguments[0], local)
        if state.value == 0:
            valid = max(0, min(local, n - device * local))
            floats(arena + 64, 1)[0] = x_local[:valid].sum(dtype=np.float32)
            state.value = 1
            return 0
        total = floats(arena + 128, 1)[0]
        floats(results[0], local)[:] = x_local * total
        floats(results[1], 3)[:] = floats(arguments[1], 3) + total
        return -1

    return executable, STEP_TYPE(step)
