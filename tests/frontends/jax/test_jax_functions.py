"""What JAX scripts call, one small function at a time: evaluated and compiled, against JAX itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from jax_functions import GROUPS  # noqa: E402

import shardc  # noqa: E402
from shardc.hlo.evaluate import evaluate  # noqa: E402

#: Unit roundoff of result types, with room for another order of summation in the comparison below.
_ROUNDOFF = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "complex64": 2.0**-24}

ROWS = {name: case for group in GROUPS.values() for name, case in group().items()}
#: Every second one in every run; XLA compiles half of the time.
OFTEN = frozenset(list(ROWS)[::2])


def leaves(tree: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(x) for x in jax.tree.leaves(tree)]


def assert_agree(got: Sequence[np.ndarray[Any, Any]], wanted: Sequence[np.ndarray[Any, Any]]) -> None:
    """Integers are equal, floats differ by at most 128 roundoffs of the largest value."""
    for a, b in zip(got, wanted, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if b.dtype.kind in "biu":
            np.testing.assert_array_equal(a, b)
            continue
        wide_a, wide_b = a.astype(np.complex128), b.astype(np.complex128)
        finite = np.isfinite(wide_b)
        np.testing.assert_array_equal(np.isfinite(wide_a), finite)
        scale = np.abs(wide_b[finite]).max(initial=0)
        assert np.abs(wide_a[finite] - wide_b[finite]).max(initial=0) <= 128 * _ROUNDOFF[b.dtype.name] * scale


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in OFTEN else pytest.mark.full) for n in ROWS])
def test_function(name: str) -> None:
    function, args = ROWS[name]
    wanted = leaves(jax.jit(function)(*args))
    program = shardc.from_jax(jax.jit(function), *args)
    assert_agree(leaves(program.compile("cpu")(*args)), wanted)
    assert_agree(evaluate(program.module, [np.asarray(x) for x in program.jax.flatten(args)]), wanted)
