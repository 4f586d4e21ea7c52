"""Random numbers: whatever is split over whatever axes, the numbers are those of the whole array."""

from __future__ import annotations

import random

import numpy as np
import pytest
from partition_support import check, layout, random_sharding, with_shardings

from shardc.costs.ops.table import instruction_flops
from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import array_shape, tuple_shape

MESHES = (Mesh({"x": 8}), Mesh({"x": 2, "y": 4}), Mesh({"x": 2, "y": 2, "z": 2}), Mesh({"x": 3, "y": 2}))
ALGORITHMS = ("rng_three_fry", "rng_philox", "rng_default")


def draw(algorithm: str, dtype: str, dims: tuple[int, ...], words: int = 2) -> Builder:
    b = Builder("main")
    state = b.parameter(array_shape("u64", words))
    shape = tuple_shape(state.shape, array_shape(dtype, *dims))
    b.add("rng-bit-generator", state, shape=shape, algorithm=algorithm)
    return b


def placed(b: Builder, mesh: Mesh, bits: Sharding) -> Module:
    """The bits as told, the state whole."""
    dims = b.instructions[-1].shape.elements[1].dims
    return with_shardings(b.build(), mesh, lambda i: bits if i.shape.dims == dims else layout(mesh, None))


def states(words: int) -> list[np.ndarray]:
    """Ordinary ones, and one whose counter runs over its lower half."""
    rng = np.random.default_rng(0)
    plain = rng.integers(0, 1 << 63, words).astype(np.uint64)
    return [plain, np.array([7, (1 << 64) - 3, 11][:words], np.uint64)]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("dtype", ["u32", "s64", "u8"])
@pytest.mark.parametrize("dims", [(64,), (31,), (16, 24), (5, 13), (1, 40), (3, 4, 6)])
def test_parts_are_those_of_the_whole(algorithm: str, dtype: str, dims: tuple[int, ...]) -> None:
    r = random.Random(f"{algorithm} {dtype} {dims}")
    words = 3 if algorithm == "rng_philox" else 2
    for state in states(words):
        mesh = r.choice(MESHES)
        check(placed(draw(algorithm, dtype, dims, words), mesh, random_sharding(r, mesh, len(dims))), [state])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("axes", [("x", None), (None, "x")])
def test_nobody_draws_what_others_need(algorithm: str, axes: tuple[str | None, ...]) -> None:
    mesh = Mesh({"x": 8})
    b = draw(algorithm, "u32", (64, 64))
    module = placed(b, mesh, layout(mesh, *axes))
    local = check(module, states(2)[:1])
    work = sum(instruction_flops(i) for i in local.instructions() if i.shape.nbytes > 64)
    assert work < 2 * instruction_flops(b.instructions[-1]) / 8
    assert all(leaf.size <= 64 * 64 // 8 for i in local.instructions() for leaf in i.shape.leaves())


def test_few_bits_are_drawn_whole() -> None:
    mesh = Mesh({"x": 4})
    check(placed(draw("rng_philox", "u4", (16,)), mesh, layout(mesh, "x")), states(2)[:1])


@pytest.mark.parametrize("distribution", ["rng_uniform", "rng_normal"])
@pytest.mark.parametrize("dtype", ["f32", "s32", "bf16"])
def test_numbers_that_hlo_leaves_open_are_the_same_on_all_devices(distribution: str, dtype: str) -> None:
    if (distribution, dtype) == ("rng_normal", "s32"):
        return
    mesh = Mesh({"x": 2, "y": 4})
    for axes in (("x", None), (None, ("x", "y")), ("y", "x"), (None, None)):
        b = Builder("main")
        low, high = (b.parameter(array_shape(dtype)) for _ in range(2))
        made = b.add("rng", low, high, shape=array_shape(dtype, 6, 16), distribution=distribution)
        module = with_shardings(b.build(made), mesh, lambda i, a=axes: layout(mesh, *a[: i.shape.rank]))
        kind = module.parameters[0].shape.dtype.numpy
        local = check(module, [np.asarray(1, kind), np.asarray(9, kind)])
        assert all(i.opcode != "rng" for i in local.instructions())


@pytest.mark.full
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_parts_are_those_of_the_whole_at_length(algorithm: str) -> None:
    r = random.Random(algorithm)
    for _ in range(600):
        dims = tuple(r.choice((1, 2, 3, 4, 5, 8, 9, 16, 17)) for _ in range(r.randrange(1, 4)))
        mesh, words = r.choice(MESHES), 2 if algorithm == "rng_three_fry" else r.choice((2, 3))
        b = draw(algorithm, r.choice(("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")), dims, words)
        check(placed(b, mesh, random_sharding(r, mesh, len(dims))), [r.choice(states(words))])
