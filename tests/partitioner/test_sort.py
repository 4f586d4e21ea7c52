"""Sorts along split dimensions: columns dealt out and merged, axes moved, or a gather."""

from __future__ import annotations

import random

import numpy as np
import pytest
from partition_support import check, collectives, layout, random_sharding, with_shardings

from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.types import array_shape, tuple_shape
from shardc.partitioner.report import build_report
from shardc.partitioner.rules.sorts.columns import rows_of_columns

MESH = Mesh({"x": 8})
MESHES = (MESH, Mesh({"x": 2, "y": 4}), Mesh({"x": 2, "y": 2, "z": 2}), Mesh({"x": 3, "y": 2}), Mesh({"x": 5}))
KINDS = ("integers", "descending", "floats", "pairs", "argsort", "by two keys")


def before(*dtypes: str, keys: tuple[int, ...] = (0,), direction: str = "LT") -> Computation:
    """Lexicographic over the operands ``keys``; floats in total order."""
    b = Builder("before")
    parameters = [b.parameter(array_shape(t)) for t in dtypes for _ in range(2)]
    result: Instruction | None = None
    for key in reversed(keys):
        x, y = parameters[2 * key : 2 * key + 2]
        how = {"type": "TOTALORDER"} if x.shape.dtype.is_float else {}
        less = b.add("compare", x, y, direction=direction, **how)
        if result is not None:
            same = b.add("compare", x, y, direction="EQ", **how)
            less = b.add("or", less, b.add("and", same, result))
        result = less
    assert result is not None
    return b.build(result)


def sort(kind: str, dims: tuple[int, ...], dim: int) -> Computation:
    b = Builder("main")
    whole, real = b.parameter(array_shape("s32", *dims)), array_shape("f32", *dims)
    if kind in ("integers", "descending"):
        direction = "LT" if kind == "integers" else "GT"
        made = b.add("sort", whole, dimensions=(dim,), to_apply=before("s32", direction=direction))
    elif kind == "floats":
        made = b.add("sort", b.parameter(real), dimensions=(dim,), is_stable=True, to_apply=before("f32"))
    elif kind == "by two keys":
        operands, types = (whole, b.parameter(real), b.parameter(real)), ("s32", "f32", "f32")
        made = b.add("sort", *operands, dimensions=(dim,), is_stable=True, to_apply=before(*types, keys=(0, 2)))
    else:
        second = b.parameter(real)
        if kind == "argsort":
            second = b.add("iota", shape=array_shape("s32", *dims), iota_dimension=dim)
        types = ("s32", second.shape.dtype.name)
        made = b.add("sort", whole, second, dimensions=(dim,), is_stable=True, to_apply=before(*types))
    return b.build(made)


def along(kind: str, mesh: Mesh, *dims: int) -> Module:
    """The last dimension over all axes; many elements are equal."""
    axes = [None] * (len(dims) - 1)
    made = sort(kind, dims, len(dims) - 1)
    return with_shardings(made, mesh, lambda i: layout(mesh, *axes, tuple(mesh.axis_names)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1024, 1601, 999])
def test_a_line_over_eight_devices(kind: str, n: int) -> None:
    moves = collectives(check(along(kind, MESH, n)))
    assert "all-gather" not in moves
    assert "all-to-all" in moves


def test_any_permutation_is_sorted() -> None:
    """As few elements as a column sort allows, in orders that move them far."""
    n = 8 * rows_of_columns(1, 8)
    module = along("integers", MESH, n)
    rng = np.random.default_rng(0)
    line = np.arange(n, dtype=np.int32)
    for given in (line, line[::-1], np.roll(line, n // 2), line.reshape(8, -1).T.ravel(), rng.permutation(line)):
        assert "all-gather" not in collectives(check(module, [np.ascontiguousarray(given)]))


def test_zeros_and_ones_at_every_place() -> None:
    """A network that sorts zeros and ones sorts everything (Knuth): any number of ones, scattered at random."""
    n = 4 * rows_of_columns(1, 4)
    b = Builder("main")
    lines = 100
    x = b.parameter(array_shape("u8", lines, n))
    made = b.build(b.add("sort", x, dimensions=(1,), to_apply=before("u8")))
    mesh = Mesh({"x": 4})
    module = with_shardings(made, mesh, lambda i: layout(mesh, None, "x"))
    rng = np.random.default_rng(0)
    given = (rng.random((lines, n)) < rng.random((lines, 1))).astype(np.uint8)
    check(module, [given])


def random_case(kind: str, seed: int) -> Module:
    r = random.Random(f"{kind} {seed}")
    mesh = r.choice(MESHES)
    rank = r.randrange(1, 4)
    dim = r.randrange(rank)
    dims = tuple(r.choice((64, 201, 500, 1000)) if d == dim else r.choice((1, 2, 3)) for d in range(rank))
    return with_shardings(sort(kind, dims, dim), mesh, lambda i: random_sharding(r, mesh, i.shape.rank))


@pytest.mark.parametrize("kind", KINDS)
def test_random_layouts(kind: str) -> None:
    for seed in range(5):
        check(random_case(kind, seed), seed=seed)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_random_layouts_at_length(kind: str) -> None:
    for seed in range(5, 300):
        check(random_case(kind, seed), seed=seed)


def test_what_is_sent() -> None:
    """Two exchanges of 7/8 of a shard and 49 elements to each neighbour; places of 2 bytes where order could show."""
    n = 4096
    r, near = n // 8, 7**2
    sent = {kind: build_report(check(along(kind, MESH, n)))["wire_bytes"] for kind in KINDS}
    dealt = 2 * 7 / 8 * r
    assert sent["integers"] == sent["descending"] == (dealt + 2 * near) * 4
    assert sent["floats"] == (dealt + 2 * near) * 4 + (dealt + near) * 2
    assert sent["argsort"] == (dealt + 2 * near) * 8
    assert sent["by two keys"] == (dealt + 2 * near) * 12 + (dealt + near) * 2


def test_few_elements_are_gathered() -> None:
    assert collectives(check(along("integers", MESH, 64))) == ["all-gather"]


def test_many_lines_move_their_axes_to_another_dimension() -> None:
    assert collectives(check(along("integers", MESH, 8, 1024))) == ["all-to-all"] * 2


# -- one end of a sort -------------------------------------------------------------------------------------------------


def ends(kind: str, dims: tuple[int, ...], dim: int, *bounds: tuple[int, int]) -> Computation:
    """Slices of every result of a sort."""
    made = sort(kind, dims, dim)
    b = Builder("main")
    b.instructions = list(made.instructions)
    found = made.root
    leaves = [found]
    if found.shape.is_tuple:
        leaves = [b.add("get-tuple-element", found, index=k) for k in range(len(found.shape.elements))]
    whole = [(0, n, 1) for n in dims]
    cuts = []
    for low, high in bounds:
        cut = (*whole[:dim], (low, high, 1), *whole[dim + 1 :])
        cuts += [b.add("slice", x, slice=cut) for x in leaves]
    return b.build(b.add("tuple", *cuts))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bounds", [((0, 3),), ((0, 1), (1, 4)), ((508, 512),), ((510, 512), (509, 511))])
def test_of_a_sort_that_is_read_at_one_end_the_ends_of_shards_are_sent(
    kind: str, bounds: tuple[tuple[int, int], ...]
) -> None:
    made = ends(kind, (512,), 0, *bounds)
    split = layout(MESH, "x")
    module = with_shardings(made, MESH, lambda i: split if i.shape.dims == (512,) else layout(MESH, None))
    assert build_report(check(module))["wire_bytes"] <= 3 * 8 * 4 * 4


def test_both_ends_or_the_middle_want_the_whole_sort() -> None:
    for bounds in (((0, 2), (510, 512)), ((200, 203),)):
        made = ends("integers", (512,), 0, *bounds)
        module = with_shardings(made, MESH, lambda i: layout(MESH, "x" if i.shape.dims == (512,) else None))
        assert build_report(check(module))["wire_bytes"] > 512


def test_random_ends() -> None:
    for seed in range(15):
        r = random.Random(seed)
        mesh, n = r.choice(MESHES), r.choice((60, 64, 120))
        dims = (n, 3) if r.random() < 0.5 else (2, n)
        low = r.choice((0, n - 2))
        made = ends(r.choice(KINDS), dims, dims.index(n), (low, low + r.randint(1, 2)))
        check(with_shardings(made, mesh, lambda i, r=r, m=mesh: random_sharding(r, m, i.shape.rank)), seed=seed)


@pytest.mark.parametrize("dim", [0, 1])
def test_an_approximate_top_k_sends_the_best_of_shards(dim: int) -> None:
    b = Builder("main")
    dims = (512, 4) if dim == 0 else (4, 512)
    x = b.parameter(array_shape("f32", *dims))
    places = b.add("iota", shape=array_shape("s32", *dims), iota_dimension=dim)
    few = tuple(5 if n == 512 else n for n in dims)
    call = b.add(
        "custom-call",
        x,
        places,
        b.constant(-np.inf, "f32"),
        b.constant(-1, "s32"),
        shape=tuple_shape(array_shape("f32", *few), array_shape("s32", *few)),
        custom_call_target="ApproxTopK",
        called_computations=(before("f32", "s32", direction="GT"),),
        backend_config=f"{{reduction_dim = {dim} : i64, top_k = 5 : i64}}",
    )
    split = layout(MESH, *("x" if n == 512 else None for n in dims))
    module = with_shardings(
        b.build(call), MESH, lambda i: split if i.shape.dims == dims else layout(MESH, *[None] * i.shape.rank)
    )
    local = check(module)
    assert build_report(local)["wire_bytes"] < 8 * 5 * 4 * 8
    assert all(i.opcode != "custom-call" for i in local.instructions())
