"""The time of kernels on a calibrated computer, counted by hand from rates that are round numbers."""

from __future__ import annotations

import pytest

from shardc.compiler.lower.buffers.reuse import memory_uses
from shardc.compiler.lower.lowered import KernelStep, Lowered, leaf_steps
from shardc.compiler.lower.pipeline import lower
from shardc.compiler.times.host_times import host_times, share_of_host
from shardc.costs.kernels.kernel_model import KernelTime
from shardc.costs.machines.measured import RANKS, VIRTUAL, Measured, Rates
from shardc.hlo.text.reader import read_hlo

CALL, PARALLEL = 1e-8, 1e-6
CACHED, FAR = 1e-12, 1e-10
_CURVE = ((1e6, CACHED), (1.01e6, FAR))


def _rates(devices: int, threads: int) -> Rates:
    return Rates(
        devices=devices,
        threads=threads,
        call_seconds=CALL,
        operations={"add f32": 1e-10, "exponential f32": 1e-8, "multiply f32": 1e-10, "reduce-rows f32": 2e-10},
        read=_CURVE,
        write=_CURVE,
        update=((1e6, CACHED / 2), (1.01e6, FAR / 2)),
        products={"f32": tuple((m, n, k, 1e-11 * m * n * k) for m in (8, 512) for n in (8, 512) for k in (8, 512))},
        parallel_seconds=PARALLEL if threads > 1 else 0.0,
    )


def _measured(where: str = RANKS) -> Measured:
    return Measured("cpu", 2, "now", (_rates(1, 2), _rates(1, 1), _rates(2, 1)), where=where)


def _lowered(entry: str, types: str, header: str = "") -> Lowered:
    return lower(read_hlo(f"HloModule m{header}\n\nENTRY %main ({types} {{\n{entry}\n}}\n"))


def _kernels(lowered: Lowered, devices: int, where: str = RANKS) -> list[KernelTime]:
    times = host_times(lowered, _measured(where), devices)
    return [times[s] for s in leaf_steps(lowered.steps) if isinstance(s, KernelStep)]


def _map(opcode: str, n: int, header: str = "") -> Lowered:
    shape = f"f32[{n}]"
    return _lowered(f"  %a = {shape} parameter(0)\n  ROOT %r = {shape} {opcode}(%a)", f"a: {shape}) -> {shape}", header)


def test_arithmetic_of_costly_operations() -> None:
    (time,) = _kernels(_map("exponential", 1000), 2)
    assert time.limit == "compute"
    assert time.seconds == pytest.approx(CALL + 1000 * 1e-8)
    assert time.efficiency == pytest.approx(1000 * 1e-8 / time.seconds)


def test_memory_of_what_lies_far() -> None:
    (time,) = _kernels(_map("negate", 1 << 20), 2)
    assert time.limit == "memory"
    assert time.seconds == pytest.approx(CALL + 8 * (1 << 20) * FAR)


def test_memory_of_what_lies_near() -> None:
    (time,) = _kernels(_map("negate", 1 << 14), 2)
    assert time.seconds == pytest.approx(CALL + max(8 * (1 << 14) * CACHED, (1 << 14) * 1e-10))


def test_donated_memory_is_updated() -> None:
    donated = ", input_output_alias={ {}: (0, {}, may-alias) }"
    (time,) = _kernels(_map("negate", 1 << 20, donated), 2)
    assert time.seconds == pytest.approx(CALL + 4 * (1 << 20) * FAR * 1.5)
    (use, change) = next(iter(memory_uses(_map("negate", 1 << 20, donated)).values()))
    assert (use.kind, change.kind) == ("read", "update")


def test_one_device_has_all_threads() -> None:
    (alone,), (each,) = _kernels(_map("exponential", 1 << 20), 1), _kernels(_map("exponential", 1 << 20), 2)
    assert alone.seconds - CALL - PARALLEL == pytest.approx((each.seconds - CALL) / 2)


def test_small_work_stays_on_one_thread() -> None:
    (alone,), (each,) = _kernels(_map("exponential", 500), 1), _kernels(_map("exponential", 500), 2)
    assert alone.seconds == pytest.approx(each.seconds)


def test_devices_beyond_the_cores_take_turns() -> None:
    assert share_of_host(_measured(), 4).turns == 2.0
    (four,), (two,) = _kernels(_map("exponential", 1000), 4), _kernels(_map("exponential", 1000), 2)
    assert four.seconds == pytest.approx(2 * two.seconds)


def test_products_follow_the_measured_sizes() -> None:
    m, n, k = 64, 100, 32
    lowered = _lowered(
        f"  %a = f32[{m},{k}] parameter(0)\n  %b = f32[{k},{n}] parameter(1)\n"
        f"  ROOT %r = f32[{m},{n}] dot(%a, %b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
        f"a: f32[{m},{k}], b: f32[{k},{n}]) -> f32[{m},{n}]",
    )
    (time,) = _kernels(lowered, 2)
    moved = 4 * (m * k + k * n + m * n) * CACHED
    assert time.seconds == pytest.approx(CALL + m * n * k * 1e-11 + moved)


def test_a_sum_reads_all_and_an_extremum_compares_too() -> None:
    def reduced(opcode: str) -> float:
        text = (
            "HloModule m\n\n%f (x: f32[], y: f32[]) -> f32[] {\n  %x = f32[] parameter(0)\n  %y = f32[] parameter(1)\n"
            f"  ROOT %z = f32[] {opcode}(%x, %y)\n}}\n\nENTRY %main (a: f32[8,1000]) -> f32[8] {{\n"
            "  %a = f32[8,1000] parameter(0)\n  %i = f32[] constant(0)\n"
            "  ROOT %r = f32[8] reduce(%a, %i), dimensions={1}, to_apply=%f\n}\n"
        )
        (time,) = _kernels(lower(read_hlo(text)), 2)
        return time.seconds

    assert reduced("add") == pytest.approx(CALL + 8000 * 2e-10)
    assert reduced("maximum") == pytest.approx(CALL + 8000 * (2e-10 + 1e-10))


def test_distances_count_what_lies_between() -> None:
    """A value that is read again after another array was used is that array's bytes away."""
    shape, big = "f32[1000]", "f32[100000]"
    lowered = _lowered(
        f"  %a = {shape} parameter(0)\n  %b = {big} parameter(1)\n  %x = {shape} exponential(%a)\n"
        f"  %y = {big} exponential(%b)\n  %s = {shape} slice(%y), slice={{[0:1000]}}\n"
        f"  %z = {shape} sort(%x), dimensions={{0}}, to_apply=%less\n  ROOT %t = ({big}, {shape}, {shape}) "
        "tuple(%y, %z, %s)",
        f"a: {shape}, b: {big}) -> ({big}, {shape}, {shape})",
        "\n\n%less (x: f32[], y: f32[]) -> pred[] {\n  %x = f32[] parameter(0)\n  %y = f32[] parameter(1)\n"
        "  ROOT %z = pred[] compare(%x, %y), direction=LT\n}",
    )
    uses = {s.instruction.opcode: u for s, u in memory_uses(lowered).items() if isinstance(s, KernelStep)}
    whole = sum(b.nbytes for b in (*lowered.parameters, *lowered.results)) + lowered.plan.arena_bytes
    assert all(u.nbytes <= u.distance <= whole for found in uses.values() for u in found)


def test_what_virtual_devices_compute_alike_is_computed_by_one() -> None:
    """A replicated argument's function: with ranks everybody computes it, with virtual devices the first one."""
    text = (
        "HloModule m, num_partitions=4\n\nENTRY %main (a: f32[1000], b: f32[4000]) -> (f32[1000], f32[1000]) {\n"
        "  %a = f32[1000] parameter(0), sharding={replicated}\n"
        "  %b = f32[4000] parameter(1), sharding={devices=[4]<=[4]}\n"
        "  %x = f32[1000] exponential(%a)\n"
        "  ROOT %t = (f32[1000], f32[1000]) tuple(%x, %x), sharding={{replicated}, {replicated}}\n}\n"
    )
    from shardc.stages.stages import Program

    lowered = lower(Program(read_hlo(text)).partition().module)
    assert lowered.once.steps, "the program has something to compute once"
    ranks = sum(t.seconds for t in _kernels(lowered, 4, RANKS))
    virtual = sum(t.seconds for t in _kernels(lowered, 4, VIRTUAL))
    assert virtual < 0.6 * ranks
