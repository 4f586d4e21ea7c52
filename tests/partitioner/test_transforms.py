"""Fourier transforms along split dimensions: four steps, axes moved to other dimensions, or a gather."""

from __future__ import annotations

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from partition_support import collectives, layout, random_sharding, run_partitioned, with_shardings

import shardc
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.types import array_shape
from shardc.hlo.verify import verify
from shardc.partitioner.prepare.join_transforms import JoinTransforms
from shardc.partitioner.prepare.split_transforms import SplitTransforms
from shardc.partitioner.report import build_report
from shardc.partitioner.rules.transforms import best_split

KINDS = ("FFT", "IFFT", "RFFT", "IRFFT")
MESH = Mesh({"x": 8})
MESHES = (MESH, Mesh({"x": 2, "y": 4}), Mesh({"x": 2, "y": 2, "z": 2}), Mesh({"x": 3, "y": 2}))


def transform(kind: str, *dims: int, wide: bool = False, count: int = 1) -> Builder:
    """``dims`` are those of the longer side: of what a real transform reads and of what its inverse gives."""
    b = Builder("main")
    lengths = dims[len(dims) - count :]
    if kind == "IRFFT":
        dims = (*dims[:-1], dims[-1] // 2 + 1)
    real, full = ("f64", "c128") if wide else ("f32", "c64")
    x = b.parameter(array_shape(real if kind == "RFFT" else full, *dims))
    b.add("fft", x, fft_type=kind, fft_length=lengths)
    return b


def compare(module: Module) -> Module:
    (x,) = module.parameters
    rng = np.random.default_rng(0)
    a = rng.standard_normal(x.shape.dims)
    if x.shape.dtype.is_complex:
        a = a + 1j * rng.standard_normal(x.shape.dims)
    a = a.astype(x.shape.dtype.numpy)
    want = evaluate(module, [a])[0]
    local, (got,) = run_partitioned(module, [a])
    assert got.dtype == want.dtype
    real = np.finfo(want.dtype).dtype
    assert abs(got - want).max(initial=0) <= 32 * np.finfo(real).eps * max(abs(want).max(initial=0), 1)
    return local


def along(kind: str, mesh: Mesh, *dims: int, wide: bool = False) -> Module:
    """The last dimension of operand and result over all axes."""
    b = transform(kind, *dims, wide=wide)
    axes = [None] * (len(dims) - 1)
    return with_shardings(b.build(b.instructions[-1]), mesh, lambda i: layout(mesh, *axes, tuple(mesh.axis_names)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [512, 1000, 1001, 720, 375, 510])
@pytest.mark.parametrize("wide", [False, True])
def test_four_steps_of_any_length_with_two_factors(kind: str, n: int, wide: bool) -> None:
    local = compare(along(kind, MESH, n, wide=wide))
    moves = collectives(local)
    assert moves.count("all-to-all") == 3
    assert "all-gather" not in moves


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mesh", [Mesh({"x": 2, "y": 4}), Mesh({"x": 5}), Mesh({"x": 2, "y": 2}, (2, 0, 3, 1))])
@pytest.mark.parametrize("n", [64, 225, 150, 49])
def test_other_meshes(kind: str, mesh: Mesh, n: int) -> None:
    compare(along(kind, mesh, 3, n))


def random_case(kind: str, seed: int) -> Module:
    r = random.Random(f"{kind} {seed}")
    mesh = r.choice(MESHES)
    rank = r.randrange(1, 4)
    dims = [r.choice((1, 2, 3, 5, 8)) for _ in range(rank - 1)] + [r.choice((2, 13, 16, 30, 64, 100))]
    b = transform(kind, *dims, count=r.randrange(1, rank + 1))
    return with_shardings(b.build(b.instructions[-1]), mesh, lambda i: random_sharding(r, mesh, i.shape.rank))


@pytest.mark.parametrize("kind", KINDS)
def test_random_layouts_and_dimensions(kind: str) -> None:
    for seed in range(12):
        compare(random_case(kind, seed))


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_random_layouts_and_dimensions_at_length(kind: str) -> None:
    for seed in range(12, 1000):
        compare(random_case(kind, seed))


def test_nothing_of_an_array_is_sent_that_needs_not_be() -> None:
    n = 4096
    shards = {kind: build_report(compare(along(kind, MESH, n)))["wire_bytes"] for kind in KINDS}
    share = n * 8 // 8 * 7 // 8
    assert shards["FFT"] == shards["IFFT"] == 3 * share
    # An exchange of real numbers, two of half of the complex ones, what fills up odd sizes, and the ends of chunks.
    assert 3 * share // 2 < shards["RFFT"] < 2 / 3 * 4 * share
    assert 3 * share // 2 < shards["IRFFT"] < 2 / 3 * 4 * share


def test_many_lines_move_their_axes_to_another_dimension() -> None:
    assert collectives(compare(along("FFT", MESH, 16, 64))) == ["all-to-all"] * 2


def test_a_prime_length_is_gathered_and_the_report_says_so() -> None:
    local = compare(along("FFT", MESH, 1009))
    assert best_split(1009, 8, "FFT") is None
    (move,) = build_report(local)["collectives"]
    assert move["op"] == "all-gather"
    assert "fft" in move["reason"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [2, 3])
def test_what_is_split_into_single_dimensions_is_joined_again(kind: str, count: int) -> None:
    b = transform(kind, 3, 4, 6, 8, count=count)
    module = with_shardings(b.build(b.instructions[-1]), MESH, lambda i: layout(MESH, *[None] * 4))
    split = SplitTransforms(free=True).run(module)
    assert [i.opcode for i in split.instructions()].count("fft") == count
    assert JoinTransforms().run(split).entry.root.attrs == module.entry.root.attrs
    assert len(JoinTransforms().run(split).entry.instructions) == 2


def chain(r: random.Random) -> Module:
    """Transforms over random dimensions one after the other, each between two transposes, of which some are missing."""
    b = Builder("main")
    x = b.parameter(array_shape(r.choice(("f32", "c64")), 4, 6, 8))
    usual = r.choice(("FFT", "IFFT"))
    for _ in range(r.randint(2, 4)):
        swap = r.choice(((0, 1, 2), (2, 1, 0), (0, 2, 1)))
        x = b.add("transpose", x, dimensions=swap) if r.random() < 0.9 else x
        kind = r.choice((usual, usual, usual, "IRFFT")) if x.shape.dtype.is_complex else "RFFT"
        n = x.shape.dims[-1]
        x = b.add("fft", x, fft_type=kind, fft_length=(2 * n - 2 if kind == "IRFFT" else n,))
        x = b.add("transpose", x, dimensions=swap) if r.random() < 0.9 else x
    dims, mesh = r.choice(((None, None, None), ("x", None, None))), Mesh({"x": 2})
    return with_shardings(b.build(x), mesh, lambda _: layout(mesh, *dims))


def test_chains_of_transforms_are_joined_only_where_one_does_the_same() -> None:
    joined = 0
    for seed in range(200):
        module = chain(random.Random(seed))
        made = JoinTransforms().run(module)
        if made is module:
            continue
        joined += 1
        verify(made)
        a = np.random.default_rng(seed).standard_normal((4, 6, 8)).astype(module.parameters[0].shape.dtype.numpy)
        (got,), (want,) = evaluate(made, [a]), evaluate(module, [a])
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * max(abs(want).max(), 1e-3), err_msg=str(seed))
    assert joined >= 10


@pytest.mark.parametrize("mesh", [{"d": 8}, {"d": 4, "m": 2}])
def test_a_transform_ends_where_its_inverse_begins(mesh: dict[str, int]) -> None:
    """A product of spectra sends one all-to-all each way for every axis, and one for the kernel."""

    def convolved(u: jax.Array, kernel: jax.Array) -> jax.Array:
        return jnp.fft.ifftn(jnp.fft.fftn(u) * kernel)

    like = jax.ShapeDtypeStruct((16, 16, 16), np.complex64)
    spec = shardc.P(*mesh)
    program = shardc.from_jax(jax.jit(convolved), like, like).annotate({"u": spec, "kernel": spec}, mesh=mesh)
    partitioned = program.partition(plan="global")
    sent = [c["op"] for c in partitioned.report()["collectives"]]
    assert len(sent) == 3 and set(sent) == {"all-to-all"}
    a, k = (np.random.default_rng(n).standard_normal((16, 16, 16)).astype(np.complex64) for n in (0, 1))
    np.testing.assert_allclose(np.asarray(partitioned.compile()(a, k)), np.fft.ifftn(np.fft.fftn(a) * k), atol=1e-4)


def test_two_devices_gather() -> None:
    assert collectives(compare(along("FFT", Mesh({"x": 2}), 64))) == ["all-gather"]


@pytest.mark.parametrize("size", [512, 2048])
@pytest.mark.parametrize("machine", ["h100-dgx", "tpu-v5p"])
def test_the_way_that_a_machine_is_given_takes_no_more_time_than_the_others(machine: str, size: int) -> None:
    """In four steps, one dimension at a time, or gathered: the sizes and the machine decide."""
    program = shardc.trace(lambda u: np.fft.fft(u, axis=0), np.zeros((size, size), np.complex64))

    def seconds(made_for: str | None) -> float:
        split = program.annotate({"u": shardc.P("d")}, mesh={"d": 8}).partition(machine=made_for, plan="propagated")
        return split.simulate(machine).step_seconds

    whole = program.annotate({"u": shardc.P()}, mesh={"d": 8}).simulate(machine).step_seconds
    assert seconds(machine) <= 1.1 * seconds(None)
    assert seconds(machine) <= 1.1 * (whole + size**2 * 8 / 50e9)  # gathered over links of 50 GB/s or more
