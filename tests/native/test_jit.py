"""Objects: the same bytes in every process, only whitelisted symbols, every whitelisted intrinsic lowers."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from llvmlite import ir

from shardc.native.llvm import blas, jit, symbols, unlocked
from shardc.native.llvm.target import Target, _free_machines, host_target, named_target
from shardc.native.math.vector import F32, F64, I1, I8, I32, I64, INTRINSICS, PTR, constant, intrinsic, with_lanes


def simple() -> ir.Module:
    module = jit.new_module("simple")
    f = ir.Function(module, ir.FunctionType(ir.DoubleType(), [ir.DoubleType()]), "f")
    b = ir.IRBuilder(f.append_basic_block())
    cosine = ir.Function(module, ir.FunctionType(ir.DoubleType(), [ir.DoubleType()]), "cos")
    b.ret(b.fadd(b.call(cosine, [f.args[0]]), constant(F64, 1.0)))
    return module


def test_compile_load_call() -> None:
    code = jit.compile_ir(simple())
    assert jit.undefined_symbols(code) == ["cos"]
    loaded = jit.load_object(code, ["f"])
    assert ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(loaded.address("f"))(0.0) == 2.0
    with pytest.raises(KeyError):
        loaded.address("g")
    assert "cos" in jit.emit_assembly(simple())


PROGRAM = """
import hashlib
from shardc.compiler.emit.native_kernel import emit_kernel
from shardc.compiler.kernel_key import kernel_key
from shardc.hlo.ir.build import Builder, binary_computation
from shardc.hlo.ir.types import array_shape
from shardc.native.llvm import jit
b = Builder("c")
x = b.parameter(array_shape("f32", 33, 20))
r = b.add("reduce", x, b.constant(0.0, "f32"), dimensions=(1,), to_apply=binary_computation("add", "f32"))
module = jit.new_module("m")
emit_kernel(module, r, "k")
print(kernel_key(r), hashlib.sha256(jit.compile_ir(module)).hexdigest())
"""


def test_same_bytes_in_every_process() -> None:
    outputs = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        )
        outputs.add(done.stdout)
    assert len(outputs) == 1


def adder(number: float) -> ir.Module:
    module = jit.new_module("adder")
    f = ir.Function(module, ir.FunctionType(ir.DoubleType(), [ir.DoubleType()]), "f")
    b = ir.IRBuilder(f.append_basic_block())
    b.ret(b.fadd(f.args[0], constant(F64, number)))
    return module


def test_same_bytes_of_a_target_machine_that_was_used() -> None:
    first = [jit.compile_ir(adder(k)) for k in range(20)]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda k: jit.compile_ir(adder(k)), range(20))) == first
    before = len(_free_machines(host_target(), 2))
    jit.compile_ir(adder(0.5))
    assert len(_free_machines(host_target(), 2)) == before
    with pytest.raises(RuntimeError, match="expected"):
        jit.compile_ir("nonsense")


def test_linkers_are_made_anew_and_their_functions_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit._Linker, "most", 3)
    call = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)
    loaded = {k: jit.load_object(jit.compile_ir(adder(k)), ["f"]) for k in range(8)}
    assert len({id(one._jit) for one in loaded.values()}) in (3, 4)
    assert [call(one.address("f"))(0.0) for one in loaded.values()] == list(range(8))
    for k in (0, 2, 3, 4, 5, 7):
        del loaded[k]
    again = jit.load_object(jit.compile_ir(adder(9)), ["f"])
    assert [call(one.address("f"))(0.0) for one in (*loaded.values(), again)] == [1, 6, 9]


def test_unknown_symbols_are_not_resolved() -> None:
    found, _ = symbols.addresses_for(["system", "cosf", blas.GEMM["f32"]])
    assert sorted(found) == ["cosf", "scipy_cblas_sgemm"]


def test_unknown_intrinsic_is_refused() -> None:
    module = jit.new_module("m")
    b = ir.IRBuilder(ir.Function(module, ir.FunctionType(ir.VoidType(), []), "f").append_basic_block())
    with pytest.raises(KeyError):
        intrinsic(b, "llvm.matrix.multiply", F32, [])


FLOATS = [
    "llvm.fabs",
    "llvm.copysign",
    "llvm.sqrt",
    "llvm.floor",
    "llvm.ceil",
    "llvm.trunc",
    "llvm.rint",
    "llvm.fmuladd",
    "llvm.fma",
    "llvm.maximum",
    "llvm.minimum",
]
ARITY = {
    "llvm.copysign": 2,
    "llvm.maximum": 2,
    "llvm.minimum": 2,
    "llvm.fma": 3,
    "llvm.fmuladd": 3,
    "llvm.fshl": 3,
    "llvm.fshr": 3,
}
TWO = {"llvm.smax", "llvm.smin", "llvm.umax", "llvm.umin"}


@pytest.mark.parametrize("target", [host_target(), named_target("x86-64"), named_target("aarch64")], ids=str)
@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16, 32])
def test_every_intrinsic_lowers(lanes: int, target: Target) -> None:
    """Each entry of the whitelist compiles for the host, plain x86-64 and AArch64, with known symbols only."""
    module = jit.new_module("m", target)
    f = ir.Function(module, ir.FunctionType(ir.VoidType(), [PTR, PTR]), "f")
    b = ir.IRBuilder(f.append_basic_block())

    def value(t: ir.Type) -> ir.Value:
        return b.load(f.args[0], typ=t, align=1)

    def keep(v: ir.Value) -> None:
        b.store(v, f.args[1], align=1)

    for name in INTRINSICS:
        for scalar in (F32, F64) if name in FLOATS else (I8, ir.IntType(16), I32, I64):
            t = with_lanes(scalar, lanes)
            mask = value(with_lanes(I1, lanes))
            if name == "llvm.masked.load" and lanes > 1:
                keep(intrinsic(b, name, t, [f.args[0], constant(I32, 1), mask, value(t)]))
            elif name == "llvm.masked.store" and lanes > 1:
                intrinsic(b, name, ir.VoidType(), [value(t), f.args[1], constant(I32, 1), mask])
            elif name.startswith("llvm.vector.reduce") and lanes > 1:
                keep(intrinsic(b, name, I1, [mask]))
            elif name.startswith("llvm.fpto"):
                keep(intrinsic(b, name, t, [value(with_lanes(F32, lanes))]))
            elif name in ("llvm.ctlz", "llvm.cttz", "llvm.abs"):
                keep(intrinsic(b, name, t, [value(t), constant(I1, 0)]))
            elif name == "llvm.memcpy":
                intrinsic(b, name, ir.VoidType(), [f.args[1], f.args[0], constant(I64, 1000), constant(I1, 0)])
            elif name == "llvm.memset":
                intrinsic(b, name, ir.VoidType(), [f.args[1], constant(I8, 0), constant(I64, 1000), constant(I1, 0)])
            elif name == "llvm.prefetch":
                intrinsic(b, name, ir.VoidType(), [f.args[0], *(constant(I32, k) for k in (0, 2, 1))])
            elif (name == "llvm.bswap" and scalar == I8) or name.startswith(("llvm.masked", "llvm.vector")):
                continue
            else:
                keep(intrinsic(b, name, t, [value(t)] * (2 if name in TWO else ARITY.get(name, 1))))
    b.ret_void()
    code = jit.compile_ir(module, target)
    known = symbols.C_SYMBOLS | symbols.MATH_SYMBOLS
    assert set(jit.undefined_symbols(code)) <= known


def test_blas_is_on_one_thread_and_multiplies() -> None:
    library = blas.library()
    assert library.scipy_openblas_get_num_threads() == 1
    module = jit.new_module("m")
    f = ir.Function(module, ir.FunctionType(ir.VoidType(), [PTR] * 3), "f")
    b = ir.IRBuilder(f.append_basic_block())
    c = partial(constant, I32)
    one, zero = constant(F32, 1.0), constant(F32, 0.0)
    a, x, out = f.args
    sizes = [c(blas.ROW_MAJOR), c(blas.NO_TRANS), c(blas.TRANS), c(5), c(6), c(7)]
    b.call(blas.declare_gemm(module, "f32"), [*sizes, one, a, c(7), x, c(7), zero, out, c(6)])
    b.ret_void()
    loaded = jit.load_object(jit.compile_ir(module), ["f"])
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((5, 7)).astype(np.float32), rng.standard_normal((6, 7)).astype(np.float32)
    result = np.empty((5, 6), np.float32)
    signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)
    signature(loaded.address("f"))(left.ctypes.data, right.ctypes.data, result.ctypes.data)
    np.testing.assert_allclose(result, left @ right.T, rtol=1e-5)


def test_a_llvmlite_of_other_names_makes_the_same_object(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "define i32 @three() {\n  %sum = add i32 1, 2\n  ret i32 %sum\n}\n"
    usual = jit.compile_ir(text)
    monkeypatch.setattr(unlocked, "_function", lambda name: None)
    assert jit.compile_ir(text) == usual


def test_no_instructions_of_sse4a_among_those_of_avx() -> None:
    # INSERTQ and EXTRQ made rows with a mask four times slower.
    assert "+sse4a" not in host_target().features.split(",")
