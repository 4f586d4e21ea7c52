"""Slices, updates, lookups and searches along split dimensions: exact, and without gathering the large array."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from partition_programs import less_than
from partition_support import check, collectives, integers, layout, random_sharding, with_shardings
from test_xla import through_xla

from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.build import Builder, binary_computation
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.opset import COLLECTIVES, Window, WindowDim
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import array_shape
from shardc.partitioner.partition import partition
from shardc.partitioner.report import build_report

LINE = Mesh({"x": 4})
GRID = Mesh({"x": 2, "y": 3})


def placed(computation: Computation, mesh: Mesh, operand: Sharding, result: Sharding | None = None) -> list[str]:
    """Collectives when the first parameter has one sharding, the root another, and all else is whole."""

    def choose(i: Instruction) -> Sharding:
        if i.opcode == "parameter" and i.attrs["index"] == 0:
            return operand
        if i.opcode == computation.root.opcode and result is not None and i.shape.rank == len(result.dims):
            return result
        return layout(mesh, *[None] * i.shape.rank)

    module = with_shardings(computation, mesh, choose)
    for seed in range(6):
        local = check(module, seed=seed)
    return collectives(local)


def far(b: Builder, index: str) -> Instruction:
    """A start in any shard, or outside of the array."""
    return b.add("multiply", b.parameter(array_shape(index)), b.constant(7, index))


def sliced(dims: tuple[int, ...], sizes: tuple[int, ...], dtype: str = "f32", index: str = "s32") -> Computation:
    b = Builder("main")
    x = b.parameter(array_shape(dtype, *dims))
    starts = [far(b, index) for _ in dims]
    return b.build(b.add("dynamic-slice", x, *starts, dynamic_slice_sizes=sizes))


def updated(dims: tuple[int, ...], sizes: tuple[int, ...], index: str = "s32") -> Computation:
    b = Builder("main")
    x, u = b.parameter(array_shape("f32", *dims)), b.parameter(array_shape("f32", *sizes))
    starts = [far(b, index) for _ in dims]
    return b.build(b.add("dynamic-update-slice", x, u, *starts))


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("dtype", ["f32", "s32", "pred", "bf16"])
def test_a_slice_of_a_split_dimension_sums_what_the_shards_own(size: int, dtype: str) -> None:
    got = placed(sliced((37, 5), (size, 5), dtype), LINE, layout(LINE, "x", None))
    assert got == ["all-reduce"]


@pytest.mark.parametrize("index", ["s8", "u32", "s64"])
def test_slices_of_several_split_dimensions(index: str) -> None:
    got = placed(sliced((7, 11), (3, 5), "f32", index), GRID, layout(GRID, "x", "y"))
    assert "all-reduce" in got


@pytest.mark.parametrize("size", [1, 2, 9, 20])
@pytest.mark.parametrize("index", ["s8", "u32", "s64"])
def test_an_update_of_a_split_dimension_sends_nothing(size: int, index: str) -> None:
    split = layout(LINE, "x", None)
    assert placed(updated((21, 3), (size, 3), index), LINE, split, split) == []
    both = layout(GRID, "x", "y")
    assert placed(updated((21, 8), (size, 2), index), GRID, both, both) == []


def test_random_slices_and_updates() -> None:
    for seed in range(60):
        r = random.Random(f"slices {seed}")
        mesh = r.choice([LINE, GRID, Mesh({"x": 2, "y": 4}, (3, 1, 0, 2, 7, 5, 6, 4))])
        dims = tuple(r.randint(1, 9) for _ in range(r.randint(1, 3)))
        sizes = tuple(r.randint(1, n) for n in dims)
        made = (sliced if r.random() < 0.5 else updated)(dims, sizes)
        check(with_shardings(made, mesh, lambda i, r=r, m=mesh: random_sharding(r, m, i.shape.rank)), seed=seed)


# -- cumulative windows, sorts, transforms -----------------------------------------------------------------------


def accumulated(dims: tuple[int, ...], d: int, backwards: bool, op: str, initial: float) -> Computation:
    b = Builder("main")
    n = dims[d]
    edge = WindowDim(n, pad_high=n - 1) if backwards else WindowDim(n, pad_low=n - 1)
    window = Window(tuple(edge if k == d else WindowDim(1) for k in range(len(dims))))
    x, start = b.parameter(array_shape("f32", *dims)), b.constant(initial, "f32")
    return b.build(b.add("reduce-window", x, start, window=window, to_apply=binary_computation(op, "f32")))


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize(("op", "initial"), [("add", 0), ("add", 3), ("maximum", -np.inf), ("multiply", 1)])
def test_cumulative_windows_gather_totals_only(backwards: bool, op: str, initial: float) -> None:
    split = layout(LINE, "x", None)
    made = accumulated((37, 3), 0, backwards, op, initial)
    local = check(with_shardings(made, LINE, lambda i: split if i.shape.rank else layout(LINE)))
    (gather,) = [i for i in local.instructions() if i.opcode in COLLECTIVES]
    assert gather.shape.dims == (4, 3)


def test_random_cumulative_windows() -> None:
    for seed in range(40):
        r = random.Random(f"cumulative {seed}")
        mesh = r.choice([LINE, GRID])
        dims = tuple(r.randint(1, 9) for _ in range(r.randint(1, 3)))
        made = accumulated(dims, r.randrange(len(dims)), r.random() < 0.5, "add", r.choice([0, 2]))
        check(with_shardings(made, mesh, lambda i, r=r, m=mesh: random_sharding(r, m, i.shape.rank)), seed=seed)


def test_a_sort_of_a_split_dimension_moves_the_axes_to_another_one() -> None:
    b = Builder("main")
    x = b.parameter(array_shape("f32", 16, 30))
    made = b.build(b.add("sort", x, dimensions=(1,), to_apply=less_than(), is_stable=True))
    split = layout(LINE, None, "x")
    assert placed(made, LINE, split, split) == ["all-to-all", "all-to-all"]


def best(dims: tuple[int, ...], k: int, largest: bool, dtype: str = "f32") -> Computation:
    b = Builder("main")
    x = b.parameter(array_shape(dtype, *dims))
    return b.build(b.add("topk", x, k=k, largest=largest))


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dtype", ["f32", "s32", "u8", "bf16"])
def test_top_k_gathers_the_best_of_each_shard(largest: bool, dtype: str) -> None:
    split = layout(LINE, None, "x")
    whole = layout(LINE, None, None)
    made = best((3, 101), 2, largest, dtype)
    module = with_shardings(made, LINE, lambda i: split if i.opcode == "parameter" else whole)
    local = check(module)
    made = [s.dims for i in local.instructions() if i.opcode in COLLECTIVES for s in i.shape.leaves()]
    assert made == [(3, 8), (3, 8)]
    if dtype == "f32":
        args = np.full((3, 101), -np.inf, np.float32)
        args[1, 7:9] = np.nan, -np.nan
        check(module, [args])


def test_random_top_k() -> None:
    for seed in range(60):
        r = random.Random(f"top {seed}")
        mesh = r.choice([LINE, GRID])
        dims = tuple(r.randint(1, 13) for _ in range(r.randint(1, 3)))
        made = best(dims, r.randint(1, dims[-1]), r.random() < 0.5)
        check(with_shardings(made, mesh, lambda i, r=r, m=mesh: random_sharding(r, m, i.shape.rank)), seed=seed)


# -- gathers and scatters of windows -----------------------------------------------------------------------------


def far_indices(b: Builder, *dims: int) -> Instruction:
    """Index vectors into any shard, or outside of the array."""
    shape = array_shape("s32", *dims)
    return b.add("multiply", b.parameter(shape), b.add("broadcast", b.constant(5, "s32"), shape=shape, dimensions=()))


def window_gather(dims: tuple[int, int], sizes: tuple[int, int], n: int, dtype: str = "f32") -> Computation:
    b = Builder("main")
    x, i = b.parameter(array_shape(dtype, *dims)), far_indices(b, n, 2)
    attrs = {"offset_dims": (1, 2), "collapsed_slice_dims": (), "start_index_map": (0, 1), "index_vector_dim": 1}
    return b.build(b.add("gather", x, i, slice_sizes=sizes, **attrs))


def window_scatter(dims: tuple[int, int], sizes: tuple[int, int], n: int, op: str) -> Computation:
    b = Builder("main")
    x, i, u = b.parameter(array_shape("f32", *dims)), far_indices(b, n, 2), b.parameter(array_shape("f32", n, *sizes))
    attrs = {"update_window_dims": (1, 2), "inserted_window_dims": (), "scatter_dims_to_operand_dims": (0, 1)}
    body = binary_computation(op, "f32")
    return b.build(b.add("scatter", x, i, u, index_vector_dim=1, to_apply=body, **attrs))


@pytest.mark.parametrize("size", [1, 3, 9])
@pytest.mark.parametrize("dtype", ["f32", "pred"])
def test_windows_of_a_split_dimension_sum_what_the_shards_own(size: int, dtype: str) -> None:
    got = placed(window_gather((30, 8), (size, 4), 3, dtype), LINE, layout(LINE, "x", None))
    assert got == ["all-reduce"]


@pytest.mark.parametrize("size", [1, 3, 9])
@pytest.mark.parametrize("op", ["add", "maximum"])
def test_windows_scattered_into_a_split_dimension_send_nothing(size: int, op: str) -> None:
    split = layout(LINE, "x", None)
    assert placed(window_scatter((30, 8), (size, 4), 3, op), LINE, split, split) == []


def test_random_windows() -> None:
    for seed in range(80):
        r = random.Random(f"windows {seed}")
        mesh = r.choice([LINE, GRID])
        dims = (r.randint(1, 15), r.randint(1, 9))
        sizes = (r.randint(1, dims[0]), r.randint(1, dims[1]))
        n = r.randint(1, 4)
        op = r.choice(["add", "maximum", "multiply"])
        made = window_gather(dims, sizes, n) if r.random() < 0.5 else window_scatter(dims, sizes, n, op)
        check(with_shardings(made, mesh, lambda i, r=r, m=mesh: random_sharding(r, m, i.shape.rank)), seed=seed)


def rows_in_a_loop(n: int, m: int) -> Computation:
    """The sum of the rows of an array without their signs, one per iteration."""
    b = Builder("main")
    x = b.parameter(array_shape("f32", n, m))
    zero = b.add("broadcast", b.constant(0.0, "f32"), shape=array_shape("f32", 1, m), dimensions=())
    init = b.add("tuple", b.constant(0, "s32"), x, zero)
    c = Builder("condition")
    p = c.parameter(init.shape)
    test = c.build(c.add("compare", c.add("get-tuple-element", p, index=0), c.constant(n, "s32"), direction="LT"))
    l = Builder("body")
    p = l.parameter(init.shape)
    i, y, s = (l.add("get-tuple-element", p, index=k) for k in range(3))
    row = l.add("dynamic-slice", y, i, l.constant(0, "s32"), dynamic_slice_sizes=(1, m))
    body = l.build(l.add("tuple", l.add("add", i, l.constant(1, "s32")), y, l.add("add", s, l.add("abs", row))))
    return b.build(b.add("get-tuple-element", b.add("while", init, condition=test, body=body), index=2))


def test_an_array_read_row_by_row_in_a_loop_is_brought_there_once() -> None:
    made = rows_in_a_loop(16, 3)

    def choose(i: Instruction) -> Sharding:
        return layout(LINE, *(("x", None) if i.shape.dims == (16, 3) else [None] * i.shape.rank))

    local = check(with_shardings(made, LINE, choose))
    before = [i.opcode for i in local.entry if i.opcode in COLLECTIVES]
    assert before == collectives(local)
    assert build_report(local)["wire_bytes"] <= 16 * 3 * 4 * 3 / 4


def test_xla_computes_the_same(tmp_path: Path) -> None:
    """Our per-device text is XLA's input too: masks, margins, shifted indices and totals mean the same there."""
    pytest.importorskip("jaxlib")
    made = {
        "slice": sliced((37, 5), (3, 5), "pred"),
        "update": updated((21, 3), (4, 3), "s64"),
        "cumulative": accumulated((37, 3), 0, False, "add", 3),
        "gather": window_gather((30, 8), (1, 4), 3, "pred"),
        "windows": window_gather((30, 8), (9, 4), 3),
        "scatter": window_scatter((30, 8), (3, 4), 3, "add"),
        "loop": rows_in_a_loop(16, 3),
    }
    cases, wanted = {}, {}
    for name, computation in made.items():

        def choose(i: Instruction, rows: tuple[int, ...] = computation.parameters[0].shape.dims) -> Sharding:
            return layout(LINE, *(("x", None) if i.shape.dims == rows else [None] * i.shape.rank))

        module = with_shardings(computation, LINE, choose)
        rng = np.random.default_rng(0)
        args = [integers(rng, p.shape) for p in module.parameters]
        cases[name], wanted[name] = (partition(module), args), evaluate(module, args)
    for name, got in through_xla(cases, tmp_path).items():
        for g, w in zip(got, wanted[name], strict=True):
            np.testing.assert_array_equal(g, w, err_msg=name)
