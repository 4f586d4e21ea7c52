"""Linear algebra, FFT and sorting of JAX programs: evaluated and compiled, against JAX on CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from jax_linalg import Case, cases  # noqa: E402

import shardc  # noqa: E402
from shardc.compiler.emit.cpu_executable import build_executable  # noqa: E402
from shardc.compiler.load.step import run_single  # noqa: E402
from shardc.hlo.config import Config  # noqa: E402
from shardc.hlo.evaluate import evaluate  # noqa: E402
from shardc.hlo.text.equal import difference  # noqa: E402
from shardc.hlo.text.printer import print_module  # noqa: E402
from shardc.hlo.text.reader import read_hlo  # noqa: E402
from shardc.native.llvm.target import host_target  # noqa: E402

Array = np.ndarray[Any, Any]

#: Relative to the largest value; the matrices are small and well-conditioned, algorithms may differ in order.
BOUND = {"float32": 2e-5, "complex64": 2e-5, "float64": 2e-13, "complex128": 2e-13}

CASES = cases()
#: One element type for each case in turn runs every time, all of them in the full suite.
NAMES = sorted({name.rsplit(" ", 1)[0] for name in CASES})
TYPES = ("float32", "complex128", "float64", "complex64")


def chosen() -> list[Any]:
    params = []
    for name in CASES:
        base, dtype = name.rsplit(" ", 1)
        there = [t for t in TYPES if f"{base} {t}" in CASES]
        quick = there[NAMES.index(base) % len(there)] == dtype
        params.append(pytest.param(name, marks=[] if quick else [pytest.mark.full]))
    return params


def small(error: Array, like: Array, bound: float) -> bool:
    return bool(np.max(np.abs(error), initial=0) <= bound * max(1, np.max(np.abs(like), initial=0)))


def assert_agree(case: Case, got: list[Array], wanted: list[Array], bound: float) -> None:
    for a, b in zip(got, wanted, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
    if case.invariant is not None:
        for error in case.invariant(*case.args, *got):
            assert small(error, case.args[0], 10 * bound)
        return
    for a, b in zip(got, wanted, strict=True):
        if b.dtype.kind in "biu" or case.exact:
            np.testing.assert_array_equal(a, b)
            np.testing.assert_array_equal(np.signbit(a.real), np.signbit(b.real))
            continue
        finite = np.isfinite(b)
        np.testing.assert_array_equal(np.where(finite, 0, a), np.where(finite, 0, b))
        assert small(a[finite] - b[finite], b[finite], bound)


@pytest.mark.parametrize("name", chosen())
def test_against_jax(name: str) -> None:
    dtype, make = CASES[name]
    with jax.enable_x64(True):
        case = make()
        function = jax.jit(case.function)
        wanted = [np.asarray(x) for x in jax.tree.leaves(function(*case.args))]
        module = shardc.from_jax(function, *case.args).module
    assert difference(read_hlo(print_module(module)), module) is None
    arguments = [np.asarray(a) for a in case.args]
    assert_agree(case, evaluate(module, arguments), wanted, BOUND[dtype])
    executable = build_executable(module, Config(), host_target(), fold=False)
    assert_agree(case, run_single(executable, arguments), wanted, BOUND[dtype])


@pytest.mark.parametrize(
    ("layouts", "results"),
    [
        (((0, 1, 2),), (None, None, None)),
        (((0, 2, 1),), ((0, 2, 1), None, None)),
        (((2, 0, 1),), ((1, 0, 2), (1, 0), None)),
    ],
)
def test_other_layouts(layouts: Any, results: Any) -> None:
    """A call whose matrices lie in another order than LAPACK's means what LAPACK makes of those bytes."""
    with jax.enable_x64(True):
        x = np.random.default_rng(1).standard_normal((2, 3, 5))
        jax.jit(jax.numpy.linalg.qr).lower(x)  # jaxlib finds LAPACK at the first lowering that needs it
        shapes = (
            jax.ShapeDtypeStruct((2, 3, 5), np.float64),
            jax.ShapeDtypeStruct((2, 3), np.int32),
            jax.ShapeDtypeStruct((2,), np.int32),
        )
        call = jax.ffi.ffi_call("lapack_dgetrf_ffi", shapes, input_layouts=layouts, output_layouts=results)
        wanted = [np.asarray(w) for w in jax.jit(call)(x)]
        module = shardc.from_jax(jax.jit(call), x).module
    case = Case(call, [x])
    assert_agree(case, evaluate(module, [x]), wanted, 1e-14)
    executable = build_executable(module, Config(), host_target(), fold=False)
    assert_agree(case, run_single(executable, [x]), wanted, 1e-14)
