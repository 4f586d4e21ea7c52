"""Loops over stencils as JAX users write them exchange once for several iterations on a machine, with JAX's values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shardc
from shardc import Mesh, P

_KERNEL = np.array([[0, 1, 0], [1, -4, 1], [0, 1, 0]], np.float32)


def update(u: Any) -> Any:
    around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
    return u.at[1:-1, 1:-1].add(0.1 * (around - 4 * u[1:-1, 1:-1]))


def convolution(u: Any) -> Any:
    return u + 0.1 * lax.conv_general_dilated(u[None, None], _KERNEL[None, None], (1, 1), "SAME")[0, 0]


def window(u: Any) -> Any:
    return lax.reduce_window(u, -jnp.inf, lax.max, (3, 3), (1, 1), "SAME")


@pytest.mark.parametrize("mesh", [Mesh({"x": 4}), Mesh({"x": 2, "y": 2})], ids=str)
@pytest.mark.parametrize("step", [update, convolution, window], ids=lambda f: f.__name__)
def test_forms_of_jax(step: Callable[[Any], Any], mesh: Mesh) -> None:
    def loop(u: Any) -> Any:
        return lax.fori_loop(0, 12, lambda _, u: step(u), u)

    u = np.random.default_rng(13).standard_normal((24, 24)).astype(np.float32)
    program = shardc.from_jax(jax.jit(loop), u).annotate({"u": P(*dict(mesh.axes))}, mesh=mesh)
    every, wide = (program.partition(machine=m) for m in (None, "h100-dgx"))
    messages = [sum(c["count"] for c in p.report()["collectives"]) for p in (every, wide)]
    assert 4 * messages[1] <= messages[0]
    np.testing.assert_allclose(np.asarray(wide.compile("cpu")(u)), np.asarray(jax.jit(loop)(u)), rtol=1e-5, atol=1e-6)
