"""Collectives among virtual devices of one GPU: the bits that every other transport gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from shardc.collectives.call.call import BufferRef
from shardc.collectives.call.reduction import supports_reduction
from shardc.collectives.gpu.kernels import GroupKernel
from shardc.collectives.gpu.places import BufferPlaces
from shardc.collectives.gpu.virtual import VirtualCollectives
from shardc.collectives.in_process.transport import LocalTransport
from shardc.hlo.ir.types import DTYPES
from shardc.native.gpu.assemble import assemble, can_assemble
from shardc.native.gpu.emulated.runtime import EmulatedRuntime
from shardc.native.gpu.images import gpu_image, new_gpu_module
from shardc.native.gpu.target import gpu_target
from tests.collectives.oracle import OPS, Case, DeviceMemory, assert_same, expected, make_case, memory_for
from tests.collectives.oracle import perform as perform_on_cpu

NOT_ARRAYS = ("token", "tuple", "opaque")
REDUCTIONS = ("add", "multiply", "maximum", "minimum", "and", "or")


def perform(runtime: EmulatedRuntime, case: Case, memories: Mapping[int, DeviceMemory]) -> None:
    """Do the case's collective on the GPU, with arenas copied there and back."""
    collectives = VirtualCollectives(runtime, [case.call], case.num_devices, range(case.num_devices))
    stream = runtime.stream()
    held = {d: (runtime.allocate(m.arena.size), runtime.pinned(m.arena.size)) for d, m in memories.items()}
    for d, (memory, pinned) in held.items():
        pinned[:] = memories[d].arena
        runtime.copy(memory.address, pinned.ctypes.data, pinned.size, stream)
    places = {d: BufferPlaces(memory.address, 0, (), ()) for d, (memory, _) in held.items()}
    for group in collectives.groups(case.call.index):
        group.start(places, stream)
    for memory, pinned in held.values():
        runtime.copy(pinned.ctypes.data, memory.address, pinned.size, stream)
    runtime.synchronize(stream)
    for d, (_, pinned) in held.items():
        memories[d].arena[:] = pinned


def check(case: Case, seed: int) -> None:
    memories = {d: memory_for(case, d) for d in range(case.num_devices)}
    before = {d: m.arena.copy() for d, m in memories.items()}
    perform(EmulatedRuntime(seed=seed), case, memories)
    for d, want in enumerate(expected(case)):
        assert_same(case, d, memories[d], want)
        others = np.ones(before[d].size, np.bool_)
        for o in case.call.operands:
            others[o.result.offset : o.result.offset + o.result.nbytes] = False
        assert (memories[d].arena[others] == before[d][others]).all(), "only results are written"


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("axes", [1, 2, 4, 6, 9])
def test_every_op_over_every_kind_of_groups(op: str, axes: int) -> None:
    dtypes = ("f32", "bf16", "s8", "c64") + (() if "reduce" in op else ("pred", "f64"))
    check(make_case(axes, op, axes, dtypes, 37), axes)


@pytest.mark.parametrize("n", [0, 1, 4, 1000])
@pytest.mark.parametrize("op", OPS)
def test_every_length(op: str, n: int) -> None:
    check(make_case(n, op, 0, ("f32", "s8"), n), n)


@pytest.mark.parametrize("reduction", ["add", *(pytest.param(r, marks=pytest.mark.full) for r in REDUCTIONS[1:])])
def test_every_reduction_of_every_type(reduction: str) -> None:
    """The bytes that the CPU's virtual devices get, padding of sub-byte numbers included."""
    names = [n for n, t in DTYPES.items() if t.kind not in NOT_ARRAYS and supports_reduction(reduction, t)]
    for part in range(0, len(names), 8):
        case = make_case(part, "all-reduce", 7, tuple(names[part : part + 8]), 21, reduction)
        gpu, cpu = ({d: memory_for(case, d) for d in range(case.num_devices)} for _ in range(2))
        perform(EmulatedRuntime(seed=part), case, gpu)
        perform_on_cpu(LocalTransport(), [case.call], case.num_devices, cpu)
        for d, memory in cpu.items():
            assert memory.arena.tobytes() == gpu[d].arena.tobytes()


def in_place(case: Case) -> Case:
    return replace(
        case, call=replace(case.call, operands=tuple(replace(o, result=o.operand) for o in case.call.operands))
    )


@pytest.mark.parametrize("n", [1, 29, 4096])
def test_an_all_reduce_in_place(n: int) -> None:
    check(in_place(make_case(5, "all-reduce", 4, ("f32", "bf16"), n)), 7)


def test_many_members_and_long_strips() -> None:
    check(make_case(3, "all-gather", 0, ("f32",), 280_000), 1)
    check(make_case(4, "all-reduce", 1, ("bf16",), 70_001), 2)


def test_places_of_arguments_results_and_constants() -> None:
    places = BufferPlaces(1000, 2000, (3000, 4000), np.array([5000, 6000]))
    refs = [BufferRef(s, i, 8, 4) for s, i in (("arena", 0), ("constant", 0), ("argument", 1), ("result", 1))]
    assert [places.address(r) for r in refs] == [1008, 2008, 4008, 6008]


@pytest.mark.skipif(not can_assemble(), reason="no PTX assembler is installed")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_kernels_are_light_and_take_sixteen_bytes_at_a_time(arch: str) -> None:
    target = gpu_target(f"cuda:{arch}")
    f32, bf16, f8 = (DTYPES[n] for n in ("f32", "bf16", "f8e4m3fn"))
    kinds = [
        GroupKernel("all-reduce", 8, "add", f32, 1 << 20),
        GroupKernel("all-reduce", 8, "add", bf16, 1 << 20, in_place=True),
        GroupKernel("all-reduce", 4, "maximum", f8, 1001),
        GroupKernel("reduce-scatter", 4, "add", f32, 1 << 18),
        GroupKernel("all-gather", 8, "", f32, 1 << 20),
        GroupKernel("all-to-all", 8, "", bf16, 1 << 20),
        GroupKernel("reduce", 8, "add", f32, 1 << 12),
    ]
    for kind in kinds:
        module = new_gpu_module("collectives", target)
        kind.emit(module, target)
        ptx = gpu_image(module, target).data
        (usage,) = assemble(ptx, arch).kernels.values()
        assert usage.spill_stores == usage.spill_loads == 0, kind
        assert usage.registers <= 96, (kind, usage.registers)
        if kind.element is not f8:
            assert b".v4." in ptx, kind


def test_one_symbol_for_one_kernel() -> None:
    f32 = DTYPES["f32"]
    kinds = [
        GroupKernel(op, members, "add", f32, strip, place)
        for op in ("all-reduce", "reduce-scatter")
        for members in (2, 4)
        for strip in (8, 16)
        for place in (False, True)
    ]
    assert len({k.symbol for k in kinds}) == len(kinds)
