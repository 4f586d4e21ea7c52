"""Steps that call Python: as often, in the order and with the values that `jax.jit` calls with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import shardc  # noqa: E402
from shardc import Mesh, P  # noqa: E402
from tests.launcher.callback_cases import CASES, X  # noqa: E402

MESHES = [None, Mesh({"d": 2}), Mesh({"d": 2, "m": 2})]
NAMES = ["one device", "two", "four"]


def logged(log: list[Any]) -> Any:
    return lambda *operands: log.append([np.array(o) for o in operands])


def same(got: Any, want: Any) -> None:
    got, want = jax.tree.leaves(got), jax.tree.leaves(want)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        g, w = np.asarray(g), np.asarray(w)
        assert g.dtype == w.dtype
        np.testing.assert_allclose(g.astype(np.complex128), w.astype(np.complex128), rtol=1e-5)
        if w.dtype == np.float32:
            np.testing.assert_array_equal(np.signbit(g), np.signbit(w))


def streams(log: list[Any], case: str) -> list[Any]:
    """The calls by the shapes of their operands: between functions JAX keeps no order, nor in some cases at all."""
    if case in ("gradient", "vmapped effects"):
        return sorted(log, key=repr)
    return sorted(log, key=lambda operands: [o.shape for o in operands])


@pytest.mark.parametrize("mesh", MESHES, ids=NAMES)
@pytest.mark.parametrize("case", CASES)
def test_as_jax_calls(case: str, mesh: Mesh | None) -> None:
    ours: list[Any] = []
    theirs: list[Any] = []
    step = shardc.jit(CASES[case](logged(ours)), mesh=mesh, in_shardings=P("d") if mesh else None)
    want = jax.jit(CASES[case](logged(theirs)))
    for x in (X, X - 4):
        expected = want(x)
        jax.effects_barrier()
        same(step(x), expected)
        same(streams(ours, case), streams(theirs, case))
    assert case == "unused" or ours
