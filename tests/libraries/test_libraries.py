"""Programs of real libraries give over a mesh what ``jax.jit`` gives on one device.

Libraries that are not installed are skipped. ``pip install -e ".[libraries]"`` installs them.
"""

from __future__ import annotations

import importlib
from typing import Any

import jax
import networks
import numpy as np
import probability
import pytest
import solvers
from library_cases import MESH, LibraryProgram, shardings

import shardc

PROGRAMS = (*networks.PROGRAMS, *solvers.PROGRAMS, *probability.PROGRAMS)


def plain(x: Any) -> np.ndarray:
    if hasattr(x, "dtype") and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    return np.asarray(x)


@pytest.mark.full
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
@pytest.mark.filterwarnings("ignore")
def test_as_jax_makes_it(program: LibraryProgram) -> None:
    for module in program.modules:
        try:
            importlib.import_module(module)
        except ImportError as e:
            pytest.skip(f"{module}: {e}")
    function, args = program.make()
    want = jax.tree.map(plain, jax.jit(function)(*args))
    got = shardc.jit(function, mesh=shardc.Mesh(MESH), in_shardings=shardings(program, args))(*args)
    got = jax.tree.map(plain, got)
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert g.dtype == w.dtype
        if w.dtype.kind in "biu":
            np.testing.assert_array_equal(g, w)
        else:
            np.testing.assert_allclose(
                g, w, rtol=program.tolerance, atol=program.tolerance * max(1e-3, np.abs(w).max(initial=0))
            )
