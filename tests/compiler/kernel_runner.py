"""Compile one instruction's kernel, run it, and compare with the evaluator."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardc.compiler.emit.native_kernel import emit_kernel
from shardc.compiler.tuning import DEFAULT, Tuning
from shardc.hlo.evaluate import evaluate_computation
from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.types import Shape, array_shape
from shardc.native.llvm import blas, jit, symbols
from shardc.native.llvm.target import Target, host_target, named_target
from shardc.native.threads.pool import PARALLEL, pool, pool_object

Array = np.ndarray[Any, Any]


def instruction(opcode: str, *shapes: Shape, shape: Shape | None = None, **attrs: Any) -> Instruction:
    """An instruction over parameters of the given shapes."""
    b = Builder("program")
    operands = [b.parameter(s) for s in shapes]
    extra: dict[str, Any] = {} if shape is None else {"shape": shape}
    return b.add(opcode, *operands, **extra, **attrs)


def fusion(computation: Computation) -> Instruction:
    """A fusion instruction that calls ``computation`` on parameters."""
    b = Builder("program")
    operands = [b.parameter(p.shape) for p in computation.parameters]
    return b.add("fusion", *operands, shape=computation.root.shape, kind="kLoop", calls=computation)


def runs_here(target: Target) -> bool:
    """Does this machine have the target's architecture and features?"""
    host = host_target()
    wanted = {f for f in target.features.split(",") if f.startswith("+")}
    return host.triple.split("-")[0] == target.triple.split("-")[0] and wanted <= set(host.features.split(","))


def _foreign() -> Target | None:
    cpu = os.environ.get("SHARDC_TEST_CPU", "")
    return named_target(cpu, "linux") if cpu else None


#: All kernels are made for this CPU (``SHARDC_TEST_CPU``), and run so where this machine can; default: this machine's.
FOREIGN = _foreign()
RUNS = FOREIGN is not None and runs_here(FOREIGN)


def kernel_object(i: Instruction, target: Target | None = None, tuning: Tuning = DEFAULT) -> bytes:
    """The object of the kernel ``k``; it needs only functions that compiled code may call."""
    module = jit.new_module("test", target)
    emit_kernel(module, i, "k", target, tuning)
    code = jit.compile_ir(module, target)
    unknown = set(jit.undefined_symbols(code)) - {"_GLOBAL_OFFSET_TABLE_"} - symbols.C_SYMBOLS - symbols.MATH_SYMBOLS
    unknown -= blas.SYMBOLS | {symbols.PARALLEL}
    assert not unknown, f"{i.opcode} for {target} calls {sorted(unknown)}"
    return code


def compile_and_run(
    i: Instruction, arguments: Sequence[Array], *, in_place: int | None = None, tuning: Tuning = DEFAULT
) -> list[Array]:
    """Results of the native kernel; ``in_place`` is the operand whose memory the first result takes."""
    loaded = jit.load_object(
        kernel_object(i, FOREIGN if RUNS else None, tuning), ["k"], {PARALLEL: pool(pool_object()).address()}
    )
    if FOREIGN is not None and not RUNS:
        kernel_object(i, FOREIGN, tuning)
    inputs = [_unaligned(np.asarray(a)) for a in arguments]
    outputs = [_garbage(s) for s in i.shape.leaves()]
    if in_place is not None:
        outputs[0] = inputs[in_place]
    signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(inputs) + len(outputs)), ctypes.c_int32)
    signature(loaded.address("k"))(*(a.ctypes.data for a in (*inputs, *outputs)), 0)
    return outputs


def _unaligned(a: Array) -> Array:
    """A copy that starts at an address aligned to the element only, with guard bytes around it."""
    size = a.dtype.itemsize
    raw = np.frombuffer(bytearray(a.nbytes + 192), np.uint8)
    start = (-raw.ctypes.data) % 64 + size
    out = raw[start : start + a.nbytes].view(a.dtype).reshape(a.shape)
    out[...] = a
    return out


def _garbage(s: Shape) -> Array:
    return _unaligned(
        np.frombuffer(b"\x01" * max(s.nbytes, 1), np.uint8)[: s.nbytes].view(s.dtype.numpy).reshape(s.dims)
    )


def expected(i: Instruction, arguments: Sequence[Array]) -> list[Array]:
    """The evaluator's answer."""
    parameters = [Instruction("parameter", o.shape, attrs={"index": n}) for n, o in enumerate(i.operands)]
    again = i.replace(operands=tuple(parameters))
    value = evaluate_computation(Computation("c", (*parameters, again), again), list(arguments))
    return list(value) if isinstance(value, (tuple, list)) else [value]


def check(i: Instruction, arguments: Sequence[Array], *, ulp: float = 0, in_place: int | None = None) -> None:
    """Native and evaluated results agree: exactly, or within ``ulp`` units of the largest magnitude."""
    wanted = expected(i, arguments)
    got = compile_and_run(i, arguments, in_place=in_place)
    for g, w, s in zip(got, wanted, i.shape.leaves(), strict=True):
        assert_close(g, np.asarray(w), s, ulp)


def assert_close(got: Array, wanted: Array, shape: Shape, ulp: float) -> None:
    assert got.shape == wanted.shape
    if not ulp or not (shape.dtype.is_float or shape.dtype.is_complex):
        np.testing.assert_array_equal(_plain(got), _plain(wanted))
        return
    g, w = _plain(got), _plain(wanted)
    finite = np.isfinite(w)
    np.testing.assert_array_equal(np.where(finite, 0, g), np.where(finite, 0, w))
    if finite.any():
        scale = max(float(np.max(np.abs(w[finite]))), 1e-30)
        assert float(np.max(np.abs(g[finite] - w[finite]))) <= ulp * _epsilon(shape) * scale


def _plain(a: Array) -> Array:
    """Exotic types as f64, so that NumPy compares them."""
    if a.dtype.kind in "biu":
        return a
    with np.errstate(all="ignore"):
        return a.astype(np.complex128) if a.dtype.kind == "c" else a.astype(np.float64)


def _epsilon(shape: Shape) -> float:
    name = {"c64": "f32", "c128": "f64"}.get(shape.dtype.name, shape.dtype.name)
    return {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}.get(name, 2.0**-2)


def random(shape: Shape, seed: int = 0, *, low: int = -9, high: int = 9) -> Array:
    """Random elements of any type: small integers, normal floats."""
    rng = np.random.default_rng([seed, shape.size, shape.dtype.bits])
    d = shape.dtype
    if d.kind == "pred":
        return rng.integers(0, 2, shape.dims).astype(np.bool_)
    if d.is_integer:
        least, most = (0, 2**d.bits - 1) if d.kind == "unsigned" else (-(2 ** (d.bits - 1)), 2 ** (d.bits - 1) - 1)
        return rng.integers(max(low, least), min(high, most) + 1, shape.dims).astype(d.numpy)
    if d.is_complex:
        return (rng.standard_normal(shape.dims) + 1j * rng.standard_normal(shape.dims)).astype(d.numpy)
    return np.asarray(rng.standard_normal(shape.dims) * 2).astype(d.numpy)


__all__ = ["array_shape", "check", "compile_and_run", "expected", "fusion", "instruction", "random"]
