"""Packing blocks of memory: nothing overlaps, regions are used, and a plan stays near what is alive at once."""

from __future__ import annotations

import random

import pytest

from shardc.compiler.lower.buffers.pack import ALIGNMENT, LiveBlock, PackedBlock, pack
from shardc.compiler.lower.lowered import Collective, leaf_steps, memory_analysis
from shardc.compiler.lower.pipeline import lower
from tests.compiler.checking import CHECKED, SUM, program


def _random_block(rng: random.Random, positions: int) -> LiveBlock:
    first = rng.randrange(positions)
    last = min(positions, first + rng.randrange(1, 8))
    mask = (1 << last) - (1 << first)
    if rng.random() < 0.2:
        mask |= 1 << rng.randrange(positions)
    return LiveBlock(mask, rng.choice((0, 1, 60, 64, 100, 4096, rng.randrange(1, 3000))))


@pytest.mark.parametrize("seed", range(20))
def test_blocks_in_use_together_do_not_overlap(seed: int) -> None:
    rng = random.Random(seed)
    regions = [_random_block(rng, 30) for _ in range(rng.randrange(4))]
    blocks = [_random_block(rng, 30) for _ in range(rng.randrange(1, 40))]
    places, arena = pack(regions, blocks, 64)
    held = [(PackedBlock(n, 0), r) for n, r in enumerate(regions)] + list(zip(places, blocks, strict=True))
    for n, (place, block) in enumerate(held):
        size = arena if place.region is None else regions[place.region].nbytes
        assert place.offset % ALIGNMENT == 0
        assert not block.nbytes or place.offset + block.nbytes <= size
        assert place.region is not None or not block.nbytes or place.offset >= 64
        for other, b in held[n + 1 :]:
            if place.region == other.region and block.mask & b.mask and block.nbytes and b.nbytes:
                assert place.offset >= other.offset + b.nbytes or other.offset >= place.offset + block.nbytes


def test_a_region_holds_what_is_needed_before_it() -> None:
    regions = [LiveBlock(0b1000, 100), LiveBlock(0b1000, 256)]
    places, arena = pack(
        regions, [LiveBlock(0b0011, 100), LiveBlock(0b0001, 256), LiveBlock(0b0110, 64), LiveBlock(0b1100, 64)], 64
    )
    assert places[:3] == [PackedBlock(0, 0), PackedBlock(1, 0), PackedBlock(1, 0)] or arena == 128
    assert places[3].region is None and arena == 128


def test_several_orders_are_tried() -> None:
    """Largest first puts the two small ones side by side below and leaves a hole that the last cannot use."""
    blocks = [LiveBlock(0b0111, 128), LiveBlock(0b1100, 192), LiveBlock(0b0001, 192), LiveBlock(0b1000, 128)]
    assert pack([], blocks)[1] == 320


def test_large_blocks_start_at_different_places_of_a_page() -> None:
    """Nor where arguments do, at its beginning: else what a kernel reads and writes would share few cache sets."""
    places, arena = pack([], [LiveBlock(0b111, 1 << 19) for _ in range(5)], 64)
    starts = {0, *(place.offset % 4096 for place in places)}
    apart = min((a - b) % 4096 for a in starts for b in starts if a != b)
    assert len(starts) == 6 and apart >= 256
    assert arena <= 64 + 5 * ((1 << 19) + 1024)


def test_large_blocks_still_lie_in_results() -> None:
    places, arena = pack([LiveBlock(0b10, 1 << 19)], [LiveBlock(0b01, 1 << 19)], 64)
    assert places == [PackedBlock(0, 0)] and arena == 64


def test_temporaries_lie_in_results_that_are_not_written_yet() -> None:
    module = program(
        "x = f32[64,64] parameter(0)\ny = f32[64,64] sine(x)\nz = f32[64,64] dot(y, x), lhs_contracting_dims={1}, "
        "rhs_contracting_dims={0}\nROOT w = f32[64,64] dot(z, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    )
    assert memory_analysis(lower(module, CHECKED))["temporary_bytes"] <= 64 * 64 * 4 + 64


def test_all_reduce_works_in_place() -> None:
    module = program(
        "x = f32[64] parameter(0)\na = f32[64] sine(x)\nb = f32[64] all-reduce(a), replica_groups={{0,1}}, "
        "to_apply=sum, channel_id=1, use_global_device_ids=true\nROOT c = f32[64] cosine(b)",
        SUM,
        ", num_partitions=2",
    )
    lowered = lower(module, CHECKED)
    (step,) = (s for s in leaf_steps(lowered.steps) if isinstance(s, Collective))
    assert lowered.plan.ref(step.operands[0]) == lowered.plan.ref(step.results[0])
    assert memory_analysis(lowered)["communication_bytes"] == 0


def test_all_reduce_leaves_an_operand_that_is_read_later() -> None:
    module = program(
        "x = f32[64] parameter(0)\na = f32[64] sine(x)\nb = f32[64] all-reduce(a), replica_groups={{0,1}}, "
        "to_apply=sum, channel_id=1, use_global_device_ids=true\nROOT c = f32[64] add(a, b)",
        SUM,
        ", num_partitions=2",
    )
    lowered = lower(module, CHECKED)
    (step,) = (s for s in leaf_steps(lowered.steps) if isinstance(s, Collective))
    assert lowered.plan.ref(step.operands[0]) != lowered.plan.ref(step.results[0])
