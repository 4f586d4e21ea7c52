"""What the StableHLO tests share: a jitted function against its own module in our evaluator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.ir import Module
from shardc.hlo.stablehlo.reader import module_from_mlir
from shardc.hlo.verify import verify


def lowered_module(fn: Callable[..., Any], *args: Any) -> Module:
    """The module of ``jit(fn)``, all parameters kept, verified."""
    lowered = jax.jit(fn, keep_unused=True).trace(*args).lower(lowering_platforms=("cpu",))
    module = module_from_mlir(lowered.compiler_ir("stablehlo"))
    verify(module)
    return module


def compare(fn: Callable[..., Any], *args: Any, rtol: float = 2e-5, atol: float = 2e-5) -> Module:
    """Our evaluator on the module agrees with XLA on the CPU: exactly for integers, closely for floats."""
    module = lowered_module(fn, *args)
    flat = [np.asarray(jax.random.key_data(a) if _is_key(a) else a) for a in jax.tree.leaves(args)]
    flat = [a.astype(p.shape.dtype.numpy) for a, p in zip(flat, module.parameters, strict=True)]
    expected = [np.asarray(jax.random.key_data(r) if _is_key(r) else r) for r in jax.tree.leaves(jax.jit(fn)(*args))]
    found = evaluate(module, flat)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        if theirs.dtype.kind in "fcV":
            wide = np.complex128 if theirs.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(ours.astype(wide), theirs.astype(wide), rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(ours, theirs)
    return module


def _is_key(x: Any) -> bool:
    return isinstance(x, jax.Array) and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
