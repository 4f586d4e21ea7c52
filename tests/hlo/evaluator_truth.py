"""The evaluator beside XLA: a JAX function goes through our reader, verifier and evaluator, and through XLA on CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.ir import Module
from shardc.hlo.verify import verify

jax = pytest.importorskip("jax")

Array = NDArray[Any]


def module_of(function: Callable[..., Any], *args: Any, platform: str = "cpu") -> Module:
    """The verified module of a JAX function."""
    from shardc.hlo.stablehlo.reader import module_from_mlir

    lowered = jax.jit(function).trace(*args).lower(lowering_platforms=(platform,))
    module = module_from_mlir(lowered.compiler_ir("stablehlo"))
    verify(module)
    return module


def both(function: Callable[..., Any], *args: Any, platform: str = "cpu") -> tuple[list[Array], list[Array]]:
    """Our results and XLA's, flattened. ``platform`` chooses the ops that JAX lowers to, not where they run."""
    with jax.enable_x64(True):
        ours = evaluate(module_of(function, *args, platform=platform), [np.asarray(a) for a in jax.tree.leaves(args)])
        theirs = [np.asarray(r) for r in jax.tree.leaves(jax.jit(function)(*args))]
    assert [(a.shape, a.dtype) for a in ours] == [(a.shape, a.dtype) for a in theirs]
    return ours, theirs


def wide(x: Array) -> Array:
    """A type that NumPy's assertions handle without loss."""
    if x.dtype.kind == "c":
        return x.astype(np.complex128)
    return x if x.dtype.kind in "iub" else x.astype(np.float64)


def agree(function: Callable[..., Any], *args: Any, tolerance: float = 0.0, platform: str = "cpu") -> None:
    """Assert that both give the same numbers, NaN included; ``tolerance`` is relative to the largest of them."""
    for ours, theirs in zip(*both(function, *args, platform=platform), strict=True):
        a, b = wide(ours), wide(theirs)
        if not tolerance:
            np.testing.assert_array_equal(a, b)
            continue
        size = float(np.max(np.abs(b), initial=0.0, where=np.isfinite(b)))
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(size, 1e-30))
