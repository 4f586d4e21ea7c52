"""The time of each kernel on a computer that was calibrated: what it does, by measured rates, where its bytes lie.

A kernel takes a call, and as long as its arithmetic or its memory traffic, whichever is more, and its products and
convolutions. Arithmetic is counted by operation and type; products and convolutions come from measured curves. Bytes
come from the cache that still holds them, by what was used since (`shardc.compiler.lower.buffers.reuse`). Devices
share the computer: with as many devices as cores each has one; with more they take turns; with fewer each has several
threads, for kernels that are worth it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardc.compiler.cpu.loops.updates import scatter_pieces
from shardc.compiler.cpu.parallel import chunks, flops_of, products_of
from shardc.compiler.lower.buffers.reuse import Use, memory_uses
from shardc.compiler.lower.lowered import BufferCopy, KernelStep, Lowered, Step, leaf_steps
from shardc.compiler.times.host_work import HostWork, host_work, inside
from shardc.costs.kernels.kernel_model import KernelTime
from shardc.costs.machines.measured import VIRTUAL, Measured, Rates, interpolate

__all__ = ["HostShare", "host_times", "share_of_host"]


@dataclass(frozen=True, slots=True)
class HostShare:
    """What one device has of the computer: ``threads`` for its kernels; ``turns`` devices go on one after the other
    on the same core."""

    threads: int
    turns: float


def share_of_host(measured: Measured, devices: int) -> HostShare:
    """Of ``devices``: cores divided, at least one thread each. Example: 4 devices on 2 cores have a thread each and
    take turns by two."""
    return HostShare(max(1, measured.cores // devices), max(1.0, devices / measured.cores))


def host_times(lowered: Lowered, measured: Measured, devices: int) -> Mapping[Step, KernelTime]:
    """The time of one execution of each kernel and copy, where ``devices`` run the program together."""
    uses = memory_uses(lowered)
    share = share_of_host(measured, devices)
    times: dict[Step, KernelTime] = {}
    for step in leaf_steps(lowered.steps):
        if isinstance(step, KernelStep | BufferCopy):
            mine = _share_of_step(step, lowered, measured, devices, share)
            times[step] = _time(step, uses.get(step, ()), measured, mine, devices)
    return times


def _share_of_step(step: Step, lowered: Lowered, measured: Measured, devices: int, share: HostShare) -> HostShare:
    """Steps that several virtual devices would do alike are done by the first of them alone."""
    number = lowered.once.steps.get(step)
    if number is None or measured.where != VIRTUAL or devices < 2:
        return share
    groups = len(list(lowered.once.groups[number].expand()))
    return share_of_host(measured, max(1, groups))


def _time(
    step: KernelStep | BufferCopy, uses: Sequence[Use], measured: Measured, share: HostShare, devices: int
) -> KernelTime:
    work = host_work(step.instruction, measured.busy) if isinstance(step, KernelStep) else HostWork()
    if work.empty and not uses:
        return KernelTime(0.0, "launch", 0.0)
    pieces = max((p.pieces for p in work.parts), default=0) or _pieces(step, sum(u.nbytes for u in uses))
    # Who calls for help does all pieces that nobody takes in time: several threads are never worse than one.
    counts = sorted({1, min(share.threads, pieces)})
    return min((_on_threads(n, pieces, work, uses, measured, share, devices) for n in counts), key=lambda t: t.seconds)


def _on_threads(
    threads: int, pieces: int, work: HostWork, uses: Sequence[Use], measured: Measured, share: HostShare, devices: int
) -> KernelTime:
    rates = measured.rates_for(devices, threads)
    elements = work.elements * _turns(pieces, threads)
    parts = sum(p.seconds * _turns(p.pieces, threads) for p in work.parts)
    memory = _memory(uses, rates, share.turns)
    waiting = rates.call_seconds + (rates.parallel_seconds if threads > 1 else 0.0)
    # Arithmetic on elements goes on while bytes come; a product's panels are copied before they are multiplied.
    total = (waiting + max(elements, memory) + parts) * share.turns
    compute = elements + parts
    limit = max((waiting, "launch"), (memory, "memory"), (compute, "compute"))[1]
    best = {"compute": compute, "memory": memory, "launch": 0.0}[limit]
    return KernelTime(total, limit, best * share.turns / total if total else 0.0)


def _turns(pieces: int, threads: int) -> float:
    """Which part of the time of all pieces passes where ``threads`` take one after the other."""
    return -(-pieces // threads) / pieces


def _memory(uses: Sequence[Use], rates: Rates, turns: float) -> float:
    """Seconds that the bytes take; while devices take turns each uses the caches up for the others."""
    curves = {"read": rates.read, "write": rates.write, "update": rates.update}
    return sum(use.nbytes * interpolate(curves[use.kind], max(1.0, use.distance * turns)) for use in uses)


def _pieces(step: KernelStep | BufferCopy, nbytes: int) -> int:
    """Into how many pieces the compiler cuts the work, which moves ``nbytes``, about."""
    if isinstance(step, BufferCopy):
        return 1
    i = step.instruction
    scatters = [op for op in inside(i) if op.opcode == "scatter"]
    if scatters:
        return min(map(scatter_pieces, scatters))
    return chunks(nbytes=nbytes, flops=flops_of(i), products=products_of(i))
