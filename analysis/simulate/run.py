"""Simulate: run a lowered program on a described machine, in the order that it is scheduled in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from types import MappingProxyType

from shardc.analysis.simulate.count_flops import model_products, products_in
from shardc.analysis.simulate.engine import Tally, run_clock
from shardc.analysis.simulate.price import Priced, price
from shardc.analysis.simulate.simulated_step import SimulatedWork
from shardc.analysis.simulate.simulation import Simulation
from shardc.analysis.uneven_splits import padding_notes
from shardc.compiler.lower.buffers.liveness import live_ranges
from shardc.compiler.lower.buffers.memory_timeline import MemoryBlock, MemoryTimeline, memory_timeline
from shardc.compiler.lower.lowered import KernelStep, Lowered, memory_analysis
from shardc.costs.machines.machine import Machine
from shardc.costs.network.placement import Placement
from shardc.hlo.errors import InputError
from shardc.hlo.ir.ir import Module
from shardc.hlo.units import bytes_text, count_text, seconds_text

__all__ = ["largest_values", "need_memory", "simulate"]

_NONE: Mapping[str, float] = MappingProxyType({})

#: How many values an error about memory names.
_NAMED = 5


def simulate(
    lowered: Lowered,
    placement: Placement,
    *,
    whole: Module | None = None,
    start_seconds: float = 1e-6,
    measured: Mapping[str, float] = _NONE,
) -> Simulation:
    """The step of ``lowered`` on the machine and with the mesh of ``placement``.

    ``whole`` is the program before it was partitioned, in which products of the model are counted (else those that a
    device executes are). ``start_seconds`` is what a start and a done cost a device, ``measured`` are seconds by kernel
    or collective that count instead of the model's.

    As many transfers go on at a time over one kind of links as the device's ``transfers`` says; the others wait in the
    order in which they began. Needs neither hardware nor tensors; what it costs depends on the program's length alone.
    A program that is larger than memory is simulated like any other: see `Simulation.fits` and `need_memory`.
    """
    module, machine, mesh = lowered.module, placement.machine, placement.mesh
    positions = live_ranges(lowered.steps, lowered.results).positions
    priced = price(lowered, placement, positions, start_seconds=start_seconds, measured=measured)
    clock = run_clock(priced.steps, machine.device.transfers)
    work = _executed(priced, clock.tally)
    memory, held = memory_timeline(lowered), memory_analysis(lowered)
    dtype, product_flops, model_flops = _products(priced, clock.tally)
    if whole is not None:
        model_flops = round(sum(model_products(whole).values()) / mesh.size)
    padded = () if whole is None else padding_notes(whole)
    call = _call_seconds(machine, lowered, mesh.size)
    peak, step = machine.device.peak(dtype), clock.now + call
    return Simulation(
        program=module.name,
        machine=placement.title,
        devices=mesh.size,
        mesh=dict(mesh.axes),
        mapping=placement.describe(),
        step_seconds=step,
        compute_seconds=clock.tally.compute,
        exposed_seconds=clock.tally.exposed,
        overlapped_seconds=clock.tally.overlapped,
        idle_seconds=clock.tally.idle + call,
        flops=sum(w.flops * w.count for w in work),
        product_flops=product_flops,
        model_flops=model_flops,
        mfu=_share(model_flops, peak * step),
        hfu=_share(product_flops, peak * step),
        peak_flops=peak,
        dtype=dtype,
        link_bytes=_link_bytes(work),
        peak_bytes=held["peak_bytes"],
        capacity_bytes=machine.device.memory_bytes,
        work=work,
        events=tuple(sorted(clock.events, key=lambda e: (e.begin, e.engine, e.work))),
        skipped=tuple(clock.skipped),
        critical_path=clock.critical_path,
        memory=memory,
        memory_curve=_curve(clock.marks, memory),
        loops=tuple(priced.loops),
        notes=(*lowered.notes, *padded, *_notes(priced), *_call_note(call), *_host_note(machine, held)),
        groups=tuple(priced.groups),
        host_bytes=held["host_bytes"],
    )


def _call_seconds(machine: Machine, lowered: Lowered, devices: int) -> float:
    """What a call of the program takes around its steps, where somebody measured that."""
    arrays = len(lowered.parameters) + len(lowered.results)
    return 0.0 if machine.measured is None else machine.measured.step_seconds(devices, arrays)


def _call_note(call: float) -> tuple[str, ...]:
    return (f"the call of the step takes {seconds_text(call)} of the idle time",) if call else ()


def _host_note(machine: Machine, held: Mapping[str, int]) -> tuple[str, ...]:
    """What a host has too little memory for."""
    there = 0 if machine.host is None else machine.host.memory_bytes
    if not there or held["host_bytes"] <= there:
        return ()
    return (
        f"the program needs {bytes_text(held['host_bytes'])} of host memory per device, but the host has "
        f"{bytes_text(there)}",
    )


def need_memory(simulation: Simulation) -> None:
    """Raises `InputError`, which names the largest values, when the program is larger than a device's memory."""
    s = simulation
    if s.fits:
        return
    raise InputError(
        f"{s.program} needs {bytes_text(s.peak_bytes)} on each of "
        f"{count_text(s.devices, 'device')}, but a device of {s.machine} has "
        f"{bytes_text(s.capacity_bytes)}. Arguments that are not donated take {bytes_text(s.memory.fixed_bytes)}"
        f"{largest_values(s)}",
        fix="shard large values over more axes, use more devices, donate arguments (donate_argnums), recompute values "
        "for gradients (jax.checkpoint); or simulate it anyway (--ignore-memory)",
    )


def largest_values(simulation: Simulation) -> str:
    """What takes most memory at the peak, as the end of a sentence; nothing where there is nothing but arguments."""
    memory = simulation.memory
    largest = [f"{_block_text(b)}, {bytes_text(b.nbytes)}" for b in memory.at(memory.peak)[:_NAMED]]
    return f"; the largest values at the peak are {'; '.join(largest)}" if largest else ""


def _block_text(b: MemoryBlock) -> str:
    name = b.op_name if b.kind == "argument" and b.op_name else b.name
    return f"{b.shape} {name}" + (f" at {PurePath(b.source).name}" if b.source else "")


def _executed(priced: Priced, tally: Tally) -> tuple[SimulatedWork, ...]:
    return tuple(
        replace(
            work,
            count=tally.count.get(n, 0),
            exposed_seconds=tally.exposed_by.get(n, 0.0),
            hidden_seconds=tally.hidden_by.get(n, 0.0),
        )
        for n, work in enumerate(priced.work)
    )


def _products(priced: Priced, tally: Tally) -> tuple[str, int, int]:
    """The type of most products, operations of all and of those that are not computed again."""
    by_dtype: dict[str, int] = {}
    model = 0
    for n, step in enumerate(priced.leaves):
        if not isinstance(step, KernelStep):
            continue
        times = tally.count.get(n, 0)
        for product in products_in(step.instruction):
            by_dtype[product.rate] = by_dtype.get(product.rate, 0) + times * product.flops
            model += 0 if product.again else times * product.flops
    if not by_dtype:
        for n, work in enumerate(priced.work):
            by_dtype[work.dtype] = by_dtype.get(work.dtype, 0) + tally.count.get(n, 0) * work.flops
        return max(by_dtype, key=lambda d: by_dtype[d], default=""), 0, 0
    return max(by_dtype, key=lambda d: by_dtype[d]), sum(by_dtype.values()), model


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _link_bytes(work: Sequence[SimulatedWork]) -> dict[str, float]:
    out: dict[str, float] = {}
    for w in work:
        for level, nbytes in w.link_bytes.items():
            out[level] = out.get(level, 0.0) + w.count * nbytes
    return out


def _curve(marks: Sequence[tuple[float, int]], memory: MemoryTimeline) -> tuple[tuple[float, int], ...]:
    """(seconds, bytes in use from then on); where several steps take no time, the most and the last of them."""
    out: list[tuple[float, int]] = []
    for seconds, position in marks:
        used = memory.in_use[position]
        same = [n for n in (-2, -1) if len(out) >= -n and out[n][0] == seconds]
        if len(same) == 2:
            out[-2:] = [(seconds, max(out[-2][1], out[-1][1])), (seconds, used)]
        elif not out or out[-1] != (seconds, used):
            out.append((seconds, used))
    return tuple(p for n, p in enumerate(out) if n == 0 or p[1] != out[n - 1][1])


def _notes(priced: Priced) -> tuple[str, ...]:
    notes = []
    unknown = [f"%{row.name}" + (f" ({row.source})" if row.source else "") for row in priced.loops if not row.known]
    if unknown:
        notes.append(f"loops of unknown length count as one iteration: {', '.join(unknown)}")
    if priced.branches:
        named = ", ".join(f"%{name}" for name in priced.branches[:_NAMED])
        more = f" and {len(priced.branches) - _NAMED} more" if len(priced.branches) > _NAMED else ""
        notes.append(f"only the slowest branch of each conditional counts: {named}{more}")
    return tuple(notes)
