"""What NCCL is asked for, and what is made here of it: ranks as threads, over a stand-in for NCCL."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardc.collectives.call.call import CollectiveCall
from shardc.collectives.call.membership import Ownership
from shardc.collectives.gpu import nccl
from shardc.collectives.gpu.nccl import NcclCollectives, nccl_reduces
from shardc.collectives.gpu.places import BufferPlaces
from shardc.collectives.gpu.routes import choose_routes
from shardc.native.gpu.emulated.runtime import EmulatedRuntime
from tests.collectives.gpu.stand_in_nccl import Transport, World, together
from tests.collectives.oracle import AXES, OPS, Case, assert_same, expected, make_case, memory_for


def perform(monkeypatch: pytest.MonkeyPatch, case: Case) -> tuple[World, list[Any]]:
    """Every device as a rank; returns their memories afterwards."""
    world = World(case.num_devices)
    monkeypatch.setattr(nccl, "Communicator", world.communicator)
    monkeypatch.setattr(nccl, "new_unique_id", world.new_unique_id)
    monkeypatch.setattr(nccl, "together", together)
    memories = [memory_for(case, d) for d in range(case.num_devices)]

    def rank(transport: Transport) -> None:
        me = transport.process_index
        runtime = EmulatedRuntime(me, seed=me)
        made = NcclCollectives(runtime, [case.call], case.num_devices, transport)  # type: ignore[arg-type]
        arena, stream = memories[me].arena, runtime.stream()
        memory, pinned = runtime.allocate(arena.size), runtime.pinned(arena.size)
        pinned[:] = arena
        runtime.copy(memory.address, pinned.ctypes.data, pinned.size, stream)
        for group in made.groups(case.call.index):
            assert group.devices == (me,)
            group.start({me: BufferPlaces(memory.address, 0, (), ())}, stream)
        runtime.copy(pinned.ctypes.data, memory.address, pinned.size, stream)
        runtime.synchronize(stream)
        arena[:] = pinned

    world.run(rank)
    return world, memories


def check(monkeypatch: pytest.MonkeyPatch, case: Case) -> World:
    world, memories = perform(monkeypatch, case)
    for d, want in enumerate(expected(case)):
        assert_same(case, d, memories[d], want)
    return world


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("axes", [2, 7])
def test_short_ones_have_the_bits_of_all_transports(monkeypatch: pytest.MonkeyPatch, op: str, axes: int) -> None:
    world = check(monkeypatch, make_case(axes, op, axes, ("f32", "bf16", "s8"), 37))
    assert not {"all_reduce", "reduce_scatter"} & set(world.called)


@pytest.mark.parametrize("reduction", ["maximum", "and"])
def test_what_nccl_has_no_reduction_for_is_reduced_here(monkeypatch: pytest.MonkeyPatch, reduction: str) -> None:
    dtypes = ("s32", "pred") if reduction in ("and", "or") else ("f32", "bf16")
    check(monkeypatch, make_case(1, "all-reduce", 7, dtypes, 20_000, reduction))


@pytest.mark.parametrize("op", ["all-reduce", "reduce-scatter"])
@pytest.mark.parametrize("reduction", ["add", "multiply"])
def test_long_sums_are_nccls_own(monkeypatch: pytest.MonkeyPatch, op: str, reduction: str) -> None:
    case = make_case(2, op, 7, ("f32",), 20_000, reduction)
    world, memories = perform(monkeypatch, case)
    assert set(world.called) == {op.replace("-", "_")}
    (operand,) = case.call.operands
    for d, (want,) in enumerate(expected(case)):
        np.testing.assert_allclose(memories[d].view(operand.result, operand.dtype), want, rtol=1e-5, atol=1e-5)


def test_which_reductions_are_nccls_own() -> None:
    def by_nccl(dtype: str, n: int, reduction: str = "add") -> bool:
        call: CollectiveCall = make_case(0, "all-reduce", 7, (dtype,), n, reduction).call
        return nccl_reduces(call, call.operands[0])

    assert by_nccl("f32", 1 << 20)
    assert not by_nccl("f32", 100)
    assert not by_nccl("f32", 1 << 20, "maximum"), "NCCL's loses NaN"
    assert not by_nccl("c64", 1 << 20)
    assert not by_nccl("f8e4m3fn", 1 << 20)


def test_routes_are_the_same_on_all_processes() -> None:
    calls = [make_case(0, "all-reduce", axes, ("f32",), 8, index=n).call for n, axes in enumerate((0, 1, 2))]
    assert AXES[2][0].size == 8

    def routes(processes: int, nccl: bool) -> tuple[list[int], list[int], list[int]]:
        found = choose_routes(calls, Ownership(8, processes), nccl)
        within, by_nccl, staged = ([c.index for c in part] for part in (found.within, found.by_nccl, found.staged))
        return within, by_nccl, staged

    assert routes(1, True) == ([0, 1, 2], [], [])
    assert routes(8, True) == ([], [0, 1, 2], [])
    assert routes(8, False) == ([], [], [0, 1, 2])
    assert routes(4, True) == ([2], [], [0, 1]), "groups of neighbours share a GPU"
