"""Helpers: programs as HLO text, random arguments, compiled against evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardc.compiler.emit.cpu_executable import build_executable
from shardc.compiler.load.step import run_single
from shardc.hlo.config import Config
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.ir import Module
from shardc.hlo.text.reader import read_hlo
from shardc.native.llvm.target import host_target

CHECKED = Config(check=True)

SUM = """
sum {
  sum.a = f32[] parameter(0)
  sum.b = f32[] parameter(1)
  ROOT sum.c = f32[] add(sum.a, sum.b)
}

max {
  max.a = f32[] parameter(0)
  max.b = f32[] parameter(1)
  ROOT max.c = f32[] maximum(max.a, max.b)
}
"""


def program(body: str, before: str = SUM, header: str = "") -> Module:
    """A module from the lines of its entry computation."""
    return read_hlo(f"HloModule test{header}\n{before}\nENTRY main {{\n{body}\n}}\n")


def random_arguments(module: Module, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    out = []
    for p in module.parameters:
        dtype = p.shape.dtype
        if dtype.is_float or dtype.is_complex:
            value = rng.standard_normal(p.shape.dims)
        elif dtype.kind == "pred":
            value = rng.integers(0, 2, p.shape.dims)
        else:
            value = rng.integers(0, 5, p.shape.dims)
        out.append(np.asarray(value).astype(dtype.numpy))
    return out


def compiled_results(module: Module, args: Sequence[Any], kernels: Any = None) -> list[np.ndarray]:
    extra = {} if kernels is None else {"kernels": kernels}
    return run_single(build_executable(module, CHECKED, host_target(), **extra), args)


def assert_close(got: Sequence[np.ndarray], wanted: Sequence[np.ndarray], tolerance: float = 2e-5) -> None:
    assert len(got) == len(wanted)
    for n, (a, b) in enumerate(zip(got, wanted, strict=True)):
        assert a.shape == b.shape and a.dtype == b.dtype, n
        if a.dtype.kind in "biu":
            np.testing.assert_array_equal(a, b, err_msg=f"result {n}")
        elif a.size:
            a64, b64 = (x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (a, b))
            finite = np.isfinite(b64)
            np.testing.assert_array_equal(a64[~finite], b64[~finite], err_msg=f"result {n}")
            scale = np.abs(b64[finite]).max(initial=1e-30)
            assert np.abs(a64[finite] - b64[finite]).max(initial=0) <= tolerance * scale, n


def check(module: Module, args: Sequence[Any] | None = None, tolerance: float = 2e-5) -> list[np.ndarray]:
    """Compile and run; compare with the evaluator."""
    args = random_arguments(module) if args is None else args
    got = compiled_results(module, args)
    assert_close(got, evaluate(module, args), tolerance)
    return got
