"""The GPUs' exponential: the same code on this machine's processor, in ulp, and NVIDIA's instruction."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from llvmlite import ir

from shardc.native.gpu.assemble import assemble
from shardc.native.gpu.emulated.coroutines import new_emulated_module
from shardc.native.gpu.nvptx import NvptxCode, emit_ptx, new_nvptx_module
from shardc.native.gpu.target import gpu_target
from shardc.native.llvm import jit
from shardc.native.math import vector_math
from shardc.native.math.vector import F32, I64, PTR, constant, with_lanes


def exponentials(x: np.ndarray, lanes: int) -> np.ndarray:
    """By code for the emulation, as a plain loop."""
    module = new_emulated_module("exp")
    f = ir.Function(module, ir.FunctionType(ir.VoidType(), [PTR, PTR]), "f")
    b = ir.IRBuilder(f.append_basic_block())
    t = with_lanes(F32, lanes)
    b.store(vector_math.call(b, "exp", b.load(f.args[0], typ=t, align=4)), f.args[1], align=4)
    b.ret_void()
    loaded = jit.load_object(jit.compile_ir(module), ["f"])
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(loaded.address("f"))
    out = np.empty_like(x)
    for k in range(0, x.size, lanes):
        call(x[k:].ctypes.data, out[k:].ctypes.data)
    return out


@pytest.mark.parametrize("lanes", [1, 4])
def test_every_size_of_result(lanes: int) -> None:
    """From denormals to the largest number, and the special ones."""
    rng = np.random.default_rng(5)
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 88.73, -87.5, -103.9, -1e30, 1e30, 1], np.float32)
    x = np.concatenate([special, rng.uniform(-104, 89, 8000).astype(np.float32)])
    got = exponentials(x, lanes)
    with np.errstate(over="ignore"):
        wanted = np.exp(x.astype(np.float64))
        rounded = wanted.astype(np.float32)
    finite = np.isfinite(rounded)
    np.testing.assert_array_equal(got[~finite], rounded[~finite])
    error = np.abs(got[finite] - wanted[finite]) / np.spacing(rounded[finite])
    assert error.max() < 2
    assert got[0] == got[1] == 1


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_nvidia_has_an_instruction(arch: str) -> None:
    target = gpu_target(f"cuda:{arch}")
    module, code = new_nvptx_module("exp", target), NvptxCode(arch)
    f = code.define(module, "k", 1)
    entry, body = f.append_basic_block("entry"), f.append_basic_block("body")
    slots, b = ir.IRBuilder(entry), ir.IRBuilder(body)
    (x,) = code.pointers(f)
    at = b.gep(x, [constant(I64, 0)], source_etype=F32)
    t = with_lanes(F32, 4)
    b.store(vector_math.call(b, "exp", b.load(at, typ=t, align=16)), at, align=16)
    code.enter(slots)
    slots.branch(body)
    code.leave(b)
    ptx = emit_ptx(module, target)
    assert ptx.count(b"ex2.approx.ftz.f32") == 4
    assert assemble(ptx, arch).kernels["k"].spill_stores == 0
