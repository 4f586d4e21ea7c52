"""Traced functions against NumPy: the same shapes, exactly the same element types, and the same values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardc.hlo.evaluate import evaluate
from shardc.hlo.numpy.trace import TracedFunction, trace_function
from shardc.hlo.numpy.tree import flatten
from shardc.hlo.verify import verify

__all__ = ["agree", "check", "compile_and_run", "leaves_of", "samples", "traced"]


def samples(dtype: Any, *dims: int, seed: int = 0) -> Any:
    """Values that every function has a meaning for: small numbers of both signs where the type has them."""
    rng = np.random.default_rng([seed, *dims])
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.random(dims) < 0.5
    if kind in "iu":
        return rng.integers(0 if kind == "u" else -9, 10, dims).astype(dtype)
    values = rng.normal(0, 2, dims)
    return (values + 1j * rng.normal(0, 2, dims)).astype(dtype) if kind == "c" else values.astype(dtype)


def traced(function: Callable[..., Any], args: Sequence[Any]) -> TracedFunction:
    made = trace_function(function, args)
    verify(made.module)
    return made


def leaves_of(value: Any) -> list[Any]:
    return [np.asarray(v) for v in flatten(value)[0]]


def copies(args: Sequence[Any]) -> list[Any]:
    """Functions may change their arguments."""
    return [a.copy() if isinstance(a, np.ndarray) else a for a in args]


def agree(got: Any, wanted: Any, ulps: float, what: str) -> None:
    """Types and shapes exactly; integers, bools and NaNs exactly; floats within ``ulps`` of the largest value."""
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert got.dtype == wanted.dtype, f"{what}: {got.dtype} instead of {wanted.dtype}"
    assert got.shape == wanted.shape, f"{what}: {got.shape} instead of {wanted.shape}"
    if not np.issubdtype(wanted.dtype, np.inexact):
        np.testing.assert_array_equal(got, wanted, err_msg=what)
        return
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(got[~finite], wanted[~finite], err_msg=what)
    scale = np.abs(wanted[finite]).max(initial=0).astype(np.float64)
    error = np.abs(got[finite].astype(np.complex128) - wanted[finite].astype(np.complex128)).max(initial=0)
    assert error <= ulps * np.finfo(wanted.dtype).eps * max(scale, 1e-30), f"{what}: off by {error} of {scale}"


def check(function: Callable[..., Any], args: Sequence[Any], ulps: float = 8, what: str = "") -> TracedFunction:
    """The evaluated program gives what NumPy gives."""
    with np.errstate(all="ignore"):
        wanted = leaves_of(function(*copies(args)))
    made = traced(function, args)
    got = evaluate(made.module, [np.asarray(a) for a in made.flatten(args)])
    assert len(got) == len(wanted)
    for g, w in zip(got, wanted, strict=True):
        agree(g, w, ulps, f"{what} evaluated")
    return made


def compile_and_run(made: TracedFunction, args: Sequence[Any]) -> list[Any]:
    """The compiled program's results, constants not folded."""
    from shardc.compiler.emit.cpu_executable import build_executable
    from shardc.compiler.load.step import run_single
    from shardc.hlo.config import Config
    from shardc.native.llvm.target import host_target

    executable = build_executable(made.module, Config(), host_target(), fold=False)
    return run_single(executable, [np.asarray(a) for a in made.flatten(args)])
