"""Sorts of a line by exact splitters: every distribution, equal elements in order, uneven chunks, any comparator with
keys; what is sent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from partition_support import check, collectives, layout, with_shardings

from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.types import DTYPES, array_shape
from shardc.partitioner.report import build_report
from shardc.partitioner.rules.sorts import sample_sort
from shardc.partitioner.rules.sorts.sample_sort import part_size
from tests.compiler.test_key_sorting import before, elements

Array = np.ndarray[Any, Any]


def program(mesh: Mesh, n: int, *dtypes: str, keys: tuple[int, ...] = (0,), direction: str = "LT") -> Module:
    """Arrays of ``n`` sorted together, split over all axes; a last one of their places shows the order of equals."""
    b = Builder("main")
    arrays = [b.parameter(array_shape(t, n)) for t in dtypes]
    made = b.add(
        "sort", *arrays, dimensions=(0,), is_stable=True, to_apply=before(*dtypes, keys=keys, direction=direction)
    )
    return with_shardings(b.build(made), mesh, lambda i: layout(mesh, tuple(mesh.axis_names)))


def is_sampled(module: Module) -> bool:
    return any(i.opcode == "while" for i in module.instructions())


DISTRIBUTIONS = {
    "random": lambda rng, n: rng.integers(-(2**31), 2**31, n),
    "sorted": lambda rng, n: np.arange(n),
    "reversed": lambda rng, n: np.arange(n)[::-1],
    "rotated": lambda rng, n: np.roll(np.arange(n), n // 3),
    "equal": lambda rng, n: np.full(n, 7),
    "two values": lambda rng, n: rng.integers(0, 2, n),
    "greatest": lambda rng, n: np.where(rng.random(n) < 0.7, 2**31 - 1, rng.integers(-5, 5, n)),
    "by device": lambda rng, n: np.arange(n) // 100 * -1,
}


#: How many elements two devices exchange: none, fewer than a window has, some windows and a rest, whole shards.
EXCHANGED = (0, 1, 40, 96, 97, 777, 1499, 1500)


@pytest.mark.parametrize("n", [3000, 2999])
@pytest.mark.parametrize("count", EXCHANGED)
def test_two_devices_swap_windows(count: int, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several windows for each run, which may lie at other places of the shards; equal elements keep their order."""
    monkeypatch.setattr(sample_sort, "_LEAST", 16)
    rng = np.random.default_rng(count)
    low, high = rng.integers(0, 50, n - n // 2), rng.integers(50, 99, n // 2)
    most = min(count, n // 2)
    low[:most], high[:most] = high[:most].copy(), low[:most].copy()
    x = np.concatenate([rng.permutation(low), rng.permutation(high)]).astype(np.int32)
    local = check(program(Mesh({"x": 2}), n, "s32", "s32"), [x, np.arange(n, dtype=np.int32)])
    assert is_sampled(local)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize(("devices", "n"), [(2, 3000), (3, 4001), (4, 6002), (5, 9996)])
def test_distributions(distribution: str, devices: int, n: int) -> None:
    """Values with places behind them: any element out of order, or equal ones exchanged, would show."""
    rng = np.random.default_rng(n)
    x = np.ascontiguousarray(DISTRIBUTIONS[distribution](rng, n)).astype(np.int32)
    module = program(Mesh({"x": devices}), n, "s32", "s32")
    local = check(module, [x, np.arange(n, dtype=np.int32)])
    assert is_sampled(local)
    assert "collective-permute" not in collectives(local)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("devices", [2, 3])
def test_rounds_in_slices(distribution: str, devices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_sort, "_LEAST", 64)
    assert sample_sort.slices_of(part_size(4001 // devices, devices)) > 4
    test_distributions(distribution, devices, 4001)


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "u8", "s64", "pred"])
@pytest.mark.parametrize("direction", ["LT", "GT"])
def test_types(dtype: str, direction: str) -> None:
    rng = np.random.default_rng(0)
    n = 5003
    x = elements(dtype, n, rng)
    local = check(program(Mesh({"x": 2, "y": 2}), n, dtype, "s32", direction=direction), [x, np.arange(n, dtype="i4")])
    assert is_sampled(local)


def test_two_keys() -> None:
    rng = np.random.default_rng(1)
    n = 6001
    x = [rng.integers(0, 3, n).astype(np.int8), elements("f32", n, rng), np.arange(n, dtype=np.int32)]
    local = check(program(Mesh({"x": 3}), n, "s8", "f32", "s32", keys=(0, 1)), x)
    assert is_sampled(local)


def test_many_devices() -> None:
    """More than parts are cut one by one for; the last ones have nothing but padding."""
    rng = np.random.default_rng(2)
    for devices, n in ((20, 40_000), (24, 50_001)):
        x = rng.integers(0, 1000, n).astype(np.int32)
        assert is_sampled(check(program(Mesh({"x": devices}), n, "s32", "s32"), [x, np.arange(n, dtype=np.int32)]))


def test_chunks_of_padding() -> None:
    """Three elements to a device leave the last ones without any: columns or a gather, or no way, but right."""
    for n in (5, 9, 17):
        check(
            program(Mesh({"x": 8}), n, "s32", "s32"),
            [np.arange(n, dtype=np.int32)[::-1].copy(), np.arange(n, dtype="i4")],
        )


def test_what_is_sent() -> None:
    """A k-th of a shard and what chance adds to every other device, once; counts besides."""
    n, k = 1 << 20, 4
    local = check(program(Mesh({"x": k}), n, "f32"), [np.random.default_rng(3).standard_normal(n).astype(np.float32)])
    r = n // k
    parts = (k - 1) * part_size(r, k) * 4
    assert parts <= build_report(local)["wire_bytes"] <= parts + 40_000
    assert part_size(r, k) < 1.04 * r / k
    assert DTYPES["f32"].nbytes == 4


def test_places_travel_in_a_narrow_type() -> None:
    """NumPy's argsort gives places as s64: four bytes of each are sent."""
    n, k = 1 << 17, 2
    b = Builder("main")
    x = b.parameter(array_shape("f64", n))
    places = b.add("iota", shape=array_shape("s64", n), iota_dimension=0)
    both = b.add("sort", x, places, dimensions=(0,), is_stable=True, to_apply=before("f64", "s64"))
    made = b.build(b.add("get-tuple-element", both, index=1))
    mesh = Mesh({"x": k})
    local = check(
        with_shardings(made, mesh, lambda i: layout(mesh, "x")),
        [elements("f64", n, np.random.default_rng(4))],
    )
    assert is_sampled(local)
    part = part_size(n // k, k)
    assert part * 12 <= build_report(local)["wire_bytes"] <= part * 12 + 20_000
