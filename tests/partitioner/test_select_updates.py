"""Scatters of one window at a known place: the same numbers as the evaluator, and only halos move."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from partition_support import check, collectives, layout, random_sharding, with_shardings

from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.build import Builder, binary_computation
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import array_shape
from shardc.partitioner.prepare.select_updates import SelectUpdates
from shardc.partitioner.report import build_report

MESH = Mesh({"x": 2, "y": 4})
KINDS = (("add", "f32"), ("add", "s32"), ("multiply", "f32"), ("maximum", "s32"), ("minimum", "f32"), ("and", "pred"))


def scatter(
    combiner: str,
    dtype: str,
    dims: tuple[int, int],
    window: tuple[int, int],
    start: tuple[int, ...],
    inserted: tuple[int, ...] = (),
) -> Builder:
    """``x`` of ``dims``, combined with updates of ``window`` from ``start`` on."""
    b = Builder("main")
    x = b.parameter(array_shape(dtype, *dims))
    kept = tuple(n for d, n in enumerate(window) if d not in inserted)
    updates = b.parameter(array_shape(dtype, *kept))
    at = b.constant(np.array(start, np.int32))
    b.add(
        "scatter",
        x,
        at,
        updates,
        update_window_dims=tuple(range(len(kept))),
        inserted_window_dims=inserted,
        scatter_dims_to_operand_dims=tuple(range(len(start))),
        index_vector_dim=0,
        to_apply=binary_computation(combiner, dtype),
    )
    return b


def opened(module: Module) -> list[str]:
    return [i.opcode for i in SelectUpdates().run(module).entry if i.opcode not in ("parameter", "constant")]


def split(*dims: str | None) -> Any:
    """Rank 2 by ``dims``, everything else whole."""
    return lambda i: layout(MESH, *dims) if i.shape.rank == 2 else Sharding.replicate(MESH, i.shape.rank)


@pytest.mark.parametrize("seed", range(30))
def test_windows_at_known_places(seed: int) -> None:
    r = random.Random(f"open scatters {seed}")
    combiner, dtype = r.choice(KINDS)
    dims = (r.randint(3, 17), r.randint(2, 9))
    window = tuple(r.randint(1, n) for n in dims)
    start = tuple(r.randint(0, n - w) for n, w in zip(dims, window, strict=True))
    inserted = (0,) if window[0] == 1 and r.random() < 0.7 else ()
    entry = scatter(combiner, dtype, dims, window, start, inserted=inserted).build()
    module = with_shardings(entry, MESH, lambda i: random_sharding(r, MESH, i.shape.rank))
    check(module, seed=seed)


def test_only_the_border_moves() -> None:
    """``x.at[1:-1].add(y[1:-1])`` of arrays that are cut alike."""
    b = Builder("main")
    x, y = (b.parameter(array_shape("f32", 64, 8)) for _ in range(2))
    inner = b.add("slice", y, slice=((1, 63, 1), (0, 8, 1)))
    at = b.constant(np.array([1], np.int32))
    dims = {"update_window_dims": (0, 1), "inserted_window_dims": (), "scatter_dims_to_operand_dims": (0,)}
    b.add("scatter", x, at, inner, index_vector_dim=0, to_apply=binary_computation("add", "f32"), **dims)
    module = with_shardings(b.build(), MESH, split("y", None))
    assert "scatter" not in opened(module)
    local = check(module)
    assert set(collectives(local)) <= {"collective-permute"}
    assert build_report(local)["wire_bytes"] <= 2 * 3 * 8 * 4


def test_zeros_keep_their_signs() -> None:
    module = with_shardings(scatter("add", "f32", (8, 4), (6, 4), (1,)).build(), MESH, split("y", None))
    x = np.where(np.arange(32).reshape(8, 4) % 2 == 0, np.float32(-0.0), np.float32(0.0))
    args = [x, np.full((6, 4), -0.0, np.float32)]
    before, after = evaluate(module, args)[0], evaluate(SelectUpdates().run(module), args)[0]
    np.testing.assert_array_equal(np.signbit(before), np.signbit(after))


def test_other_scatters_stay() -> None:
    whole = with_shardings(scatter("add", "f32", (8, 4), (6, 4), (1,)).build(), MESH, split(None, "x"))
    assert opened(whole) == ["scatter"]  # the window spans the split dimension
    beyond = with_shardings(scatter("add", "f32", (8, 4), (6, 4), (3,)).build(), MESH, split("y", None))
    assert opened(beyond) == ["scatter"]  # such windows are dropped
    check(beyond)
    moved = Builder("main")
    x, at, updates = (moved.parameter(array_shape(*s)) for s in (("f32", 8, 4), ("s32", 1), ("f32", 6, 4)))
    dims = {"update_window_dims": (0, 1), "inserted_window_dims": (), "scatter_dims_to_operand_dims": (0,)}
    moved.add("scatter", x, at, updates, index_vector_dim=0, to_apply=binary_computation("add", "f32"), **dims)
    assert opened(with_shardings(moved.build(), MESH, split("y", None))) == ["scatter"]


@pytest.mark.parametrize("parts", [("y", "x"), (None, "y")])
def test_an_index_vector_of_no_numbers_means_the_whole_array(parts: tuple[str | None, ...]) -> None:
    module = with_shardings(scatter("add", "f32", (8, 4), (8, 4), ()).build(), MESH, split(*parts))
    assert not collectives(check(module))
