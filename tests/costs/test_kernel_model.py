"""Kernel times: hand-computed cases, bounds, and that more work never takes less time."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.costs.kernels.kernel_model import (
    KernelTime,
    KernelWork,
    busy_seconds,
    kernel_seconds,
    product_bytes,
    product_seconds,
)
from shardc.costs.machines.device import Device, MatrixUnit
from shardc.costs.machines.machine import load_machine, machine_names
from shardc.costs.ops.op_cost import MatrixProduct

UNIT = MatrixUnit(units=2, shape=(8, 16, 32), tile=(8, 16), fill_seconds=1.0, share=0.5)
DEVICE = Device(
    memory_bytes=1 << 30, memory_bandwidth=100.0, flops={"bf16": 8192.0, "f32": 4096.0}, kind="accelerator",
    memory_share=0.5, memory_latency=1.0, launch_seconds=2.0, vector_flops=10.0, special_flops=5.0, granule_bytes=64,
    matrix=UNIT,
)  # fmt: skip
ACCELERATORS = [load_machine(n).device for n in machine_names() if load_machine(n).device.kind == "accelerator"]
SIZES = st.integers(1, 20_000)


def bf16(m: int, n: int, k: int, batch: int = 1) -> MatrixProduct:
    return MatrixProduct(batch, m, n, k, "bf16", (2, 2, 2))


def alone(product: MatrixProduct) -> KernelWork:
    left, right, out = product.sizes
    read = product.batch * (product.m * product.k * left + product.k * product.n * right)
    return KernelWork((product,), read=read, written=product.batch * product.m * product.n * out, dtype="bf16")


def test_a_product_by_hand() -> None:
    """Each of two units does 2048 operations per second: a tile of 8 x 16 x 32 takes four seconds, and one to begin."""
    assert product_seconds(DEVICE, bf16(8, 16, 32)) == 4 + 1
    assert product_seconds(DEVICE, bf16(16, 16, 32)) == 4 + 1  # a tile each
    assert product_seconds(DEVICE, bf16(24, 16, 32)) == 2 * (4 + 1)  # three tiles are two waves
    assert product_seconds(DEVICE, bf16(5, 9, 20)) == 4 + 1  # padded
    assert product_seconds(DEVICE, bf16(1, 1, 8)) == 8 / 10  # in the vector unit
    assert product_seconds(DEVICE, bf16(8, 16, 33)) == 4 + 2  # halves of k on both units, added up
    assert product_seconds(DEVICE, bf16(8, 16, 32, batch=4)) == 2 * (4 + 1)
    assert product_seconds(DEVICE, MatrixProduct(1, 8, 16, 32, "f32")) == 8 + 1
    assert product_seconds(DEVICE, replace(bf16(8, 16, 32), terms=4)) == 16 + 1


def test_narrow_tiles_wait_for_operands() -> None:
    narrow = replace(DEVICE, matrix=replace(UNIT, narrowest=32))
    assert product_seconds(narrow, bf16(8, 16, 32)) == 2 * 32 * 32 * 32 / 2048 + 1


def test_operands_are_read_again_by_each_block() -> None:
    """A chip that holds sums of 16 elements: blocks of 4 x 4 read a 32 x 1024 operand eight times."""
    chip = replace(DEVICE, on_chip_bytes=128)
    left = 32 * 1024 * 2
    assert product_bytes(chip, bf16(32, 32, 1024)) == 2 * left * 7
    assert product_bytes(chip, bf16(32, 32, 1024, batch=3)) == 3 * 2 * left * 7
    assert product_bytes(chip, bf16(1, 16, 1024)) == 0  # one block
    assert product_bytes(chip, bf16(1000, 1000, 1)) == 2 * (1000 * 249 * 2)
    assert product_bytes(replace(DEVICE, on_chip_bytes=1 << 20), bf16(32, 32, 1024)) == 0
    assert product_bytes(DEVICE, bf16(32, 32, 1024)) == 0


def test_limits_and_efficiency_by_hand() -> None:
    memory = kernel_seconds(DEVICE, KernelWork(read=1000, written=1000))
    assert memory == KernelTime(3 + 2000 / 50, "memory", pytest.approx(20 / 43))
    vector = kernel_seconds(DEVICE, KernelWork(operations=(("simple", 100.0), ("special", 50.0)), read=1))
    assert vector.seconds == 3 + 100 / 10 + 2 * 50 / 10 + 50 / 5
    assert vector.limit == "compute"
    assert kernel_seconds(DEVICE, KernelWork(read=50)).limit == "launch"
    assert kernel_seconds(DEVICE, KernelWork(read=50, launches=3)).seconds == 3 * 3 + 1
    assert kernel_seconds(DEVICE, KernelWork()) == KernelTime(0.0, "launch", 0.0)
    assert kernel_seconds(DEVICE, KernelWork(rows=((10, 4),), read=40)).seconds == 3 + 640 / 50
    assert busy_seconds(DEVICE, KernelWork(read=50)) == 1


def test_units_work_side_by_side_unless_one_waits_for_the_other() -> None:
    work = KernelWork((bf16(8, 16, 32),), (("simple", 40.0),))
    assert busy_seconds(DEVICE, work) == 5
    assert busy_seconds(DEVICE, replace(work, chained=True)) == 4 + 5
    assert busy_seconds(replace(DEVICE, vector_flops=0.0), work) == 5 + 40 / 4096


def test_wide_elements_take_longer_on_the_vector_unit() -> None:
    device = replace(DEVICE, flops={"f32": 8.0, "f64": 2.0})
    work = KernelWork(operations=(("simple", 10.0),))
    assert busy_seconds(device, replace(work, dtype="f64")) == 4 * busy_seconds(device, work)


@pytest.mark.parametrize("device", ACCELERATORS, ids=lambda d: f"{d.flops['bf16']:.3g}")
def test_large_products_reach_the_share_and_no_more(device: Device) -> None:
    """Published maxima for well-shaped products are within a few points of the model's."""
    found = kernel_seconds(device, alone(bf16(8192, 8192, 8192)))
    assert found.limit == "compute"
    assert device.matrix.share * 0.9 < found.efficiency <= device.matrix.share


@pytest.mark.parametrize(
    ("name", "shape", "published"),
    [
        ("a100-dgx", (1024, 10240, 5120), 0.869),
        ("h100-dgx", (2048, 2048, 13312), 0.803),
        ("gb200-nvl72", (4096, 9728, 2048), 0.729),
    ],
)
def test_published_best_shapes(name: str, shape: tuple[int, int, int], published: float) -> None:
    """Bekman, ML Engineering: the highest rates measured, and for which shapes."""
    found = kernel_seconds(load_machine(name).device, alone(bf16(*shape)))
    assert found.efficiency == pytest.approx(published, abs=0.02)


@pytest.mark.parametrize("device", [DEVICE, *ACCELERATORS], ids=lambda d: f"{d.flops['bf16']:.3g}")
@settings(deadline=None, max_examples=50)
@given(m=SIZES, n=SIZES, k=SIZES, more=st.sampled_from(["m", "n", "k", "batch"]), by=st.integers(1, 3000))
def test_more_takes_no_less_and_never_beats_the_peak(
    device: Device, m: int, n: int, k: int, more: str, by: int
) -> None:
    """And nothing beats the peaks of arithmetic and memory."""
    one = bf16(m, n, k)
    larger: Any = {more: getattr(one, more) + (1 if more == "batch" else by)}
    time = kernel_seconds(device, alone(one))
    assert kernel_seconds(device, alone(replace(one, **larger))).seconds >= time.seconds * (1 - 1e-12)
    assert time.seconds >= one.flops / device.flops["bf16"]
    assert 0 < time.efficiency <= 1 + 1e-9
    assert time.seconds >= (alone(one).read + alone(one).written) / device.memory_bandwidth


def test_steps_of_padding() -> None:
    """On 128 x 128 units a width of 129 takes as long as 256 in the matrix unit."""
    device = load_machine("tpu-v5p").device
    times = [product_seconds(device, bf16(4096, n, 4096)) for n in (128, 129, 256)]
    assert times[1] == times[2]
    assert times[1] / times[0] == pytest.approx(2, rel=0.1)


def test_decoding_is_limited_by_memory() -> None:
    """One token's product with 2 GB of weights: what it reads at the achievable bandwidth."""
    for device in ACCELERATORS:
        found = kernel_seconds(device, alone(bf16(1, 1 << 15, 1 << 15)))
        assert found.limit == "memory"
        assert found.efficiency == pytest.approx(device.memory_share, rel=0.05)


def test_short_types_take_rates_of_their_own_or_the_next_wider() -> None:
    h100, v4 = load_machine("h100-dgx").device, load_machine("tpu-v4").device
    assert h100.peak("f8e4m3fn") == h100.flops["f8"] > h100.peak("bf16")
    assert v4.peak("f8e5m2") == v4.flops["s8"]
    assert v4.peak("f16") == v4.peak("bf16")
    assert h100.peak("f32_default") > h100.peak("f32")
    assert math.isclose(v4.peak("f32"), v4.peak("bf16") / 6, rel_tol=1e-4)
