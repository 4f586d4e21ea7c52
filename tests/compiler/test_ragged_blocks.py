"""Ragged products in blocks of rows against one product per group in float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.compiler.lower.pipeline import lower
from shardc.hlo.ir.ir import Module
from shardc.stages.stages import Program
from tests.compiler.checking import program

ROWS, K, N, GROUPS = 300, 24, 40, 12
#: Shapes of the sides and of the result, and the attributes.
KINDS = {
    "rows": (f"[{ROWS},{K}]", f"[{GROUPS},{K},{N}]", f"[{ROWS},{N}]",
             "lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}"),
    "rows, turned": (f"[{ROWS},{K}]", f"[{N},{GROUPS},{K}]", f"[{ROWS},{N}]",
                     "lhs_contracting_dims={1}, rhs_contracting_dims={2}, lhs_ragged_dims={0}, rhs_group_dims={1}"),
    "contracted": (f"[{ROWS},{K}]", f"[{ROWS},{N}]", f"[{GROUPS},{K},{N}]",
                   "lhs_contracting_dims={0}, rhs_contracting_dims={0}, lhs_ragged_dims={0}"),
}  # fmt: skip


def module_of(kind: str, dtype: str) -> Module:
    lhs, rhs, result, attributes = KINDS[kind]
    return program(
        f"x = {dtype}{lhs} parameter(0)\ny = {dtype}{rhs} parameter(1)\ng = s32[{GROUPS}] parameter(2)\n"
        f"ROOT r = {dtype}{result} ragged-dot(x, y, g), {attributes}"
    )


def wanted(kind: str, x: np.ndarray, y: np.ndarray, sizes: list[int]) -> np.ndarray:
    x, y = x.astype(np.float64), y.astype(np.float64)
    out = np.zeros((GROUPS, K, N) if kind == "contracted" else (ROWS, N))
    ends = np.cumsum(sizes)
    for g, (begin, end) in enumerate(zip(ends - sizes, ends, strict=True)):
        if kind == "contracted":
            out[g] = x[begin:end].T @ y[begin:end]
        else:
            out[begin:end] = x[begin:end] @ (y[g] if kind == "rows" else y[:, g].T)
    return out


def split(seed: int, total: int) -> list[int]:
    """Sizes of groups, some of them zero."""
    rng = np.random.default_rng(seed)
    shares = rng.random(GROUPS) ** 3 * (rng.random(GROUPS) < 0.7) + 1e-9
    return rng.multinomial(total, shares / shares.sum()).tolist()


@pytest.mark.parametrize("kind", list(KINDS))
@settings(max_examples=8, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.sampled_from([0, 64, 190, ROWS]))
def test_random_sizes(kind: str, seed: int, total: int) -> None:
    sizes = split(seed, total)
    rng = np.random.default_rng(seed)
    module = module_of(kind, "f32")
    x, y = (rng.standard_normal(p.shape.dims).astype(np.float32) for p in module.parameters[:2])
    got = np.asarray(Program(module).compile("cpu")(x, y, np.array(sizes, np.int32)))
    np.testing.assert_allclose(got, wanted(kind, x, y, sizes), rtol=1e-4, atol=1e-4)


def test_what_lies_outside_of_all_groups_does_not_matter() -> None:
    sizes = split(3, 100)
    module = module_of("contracted", "f32")
    x, y = (np.full(p.shape.dims, np.inf, np.float32) for p in module.parameters[:2])
    x[:100], y[:100] = 1, 2
    got = np.asarray(Program(module).compile("cpu")(x, y, np.array(sizes, np.int32)))
    np.testing.assert_array_equal(got, np.broadcast_to(2 * np.array(sizes)[:, None, None], got.shape))


@pytest.mark.parametrize("kind", list(KINDS))
def test_sums_of_bf16_round_once(kind: str) -> None:
    sizes = [ROWS, *[0] * (GROUPS - 1)]
    rng = np.random.default_rng(1)
    module = module_of(kind, "bf16")
    x, y = (rng.standard_normal(p.shape.dims).astype(p.shape.dtype.numpy) for p in module.parameters[:2])
    got = np.asarray(Program(module).compile("cpu")(x, y, np.array(sizes, np.int32))).astype(np.float64)
    np.testing.assert_allclose(got, wanted(kind, x, y, sizes), rtol=2**-8, atol=1e-4)


@pytest.mark.parametrize("kind", list(KINDS))
def test_memory_does_not_grow_with_the_groups(kind: str) -> None:
    """One array of a row for each group would have 12 * 300 * 24 elements."""
    assert lower(module_of(kind, "f32")).plan.arena_bytes < 4 * GROUPS * ROWS * K
