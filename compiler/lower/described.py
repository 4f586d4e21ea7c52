"""Lowering for a described machine: what the simulator walks.

For processors of the kind that we emit code for, that is what `compile("cpu")` compiles. For an accelerator nothing is
emitted, but the program is fused, ordered and scheduled as compilers for such chips do: without the passes that are
there for our own kernels, with fused attention where the device has it. `for_gpu` lowers for kernels of ours on GPUs.
"""

from __future__ import annotations

from dataclasses import replace

from shardc.compiler.lower.expand.remove_markers import RemoveMarkers
from shardc.compiler.lower.fuse.fuse import Fuse
from shardc.compiler.lower.fuse.fuse_attention import FuseAttention
from shardc.compiler.lower.fuse.fuse_movement import FuseMovement
from shardc.compiler.lower.fuse.fuse_products import FuseProducts
from shardc.compiler.lower.fuse.merge_kernels import MergeKernels
from shardc.compiler.lower.host_memory.fetch_ahead import FetchAhead
from shardc.compiler.lower.lowered import Lowered
from shardc.compiler.lower.pipeline import PASSES, lower, lower_with
from shardc.compiler.lower.schedule.convert_async import ConvertAsync
from shardc.compiler.lower.schedule.overlap import Overlap
from shardc.compiler.lower.schedule.schedule import Schedule
from shardc.compiler.lower.simplify.simplify_loops import SimplifyLoops
from shardc.costs.machines.machine import Machine
from shardc.costs.network.placement import Placement
from shardc.hlo.config import Config
from shardc.hlo.ir.ir import Module
from shardc.hlo.passes import Pass

__all__ = ["accelerator_passes", "device_passes", "lower_for", "overlap_on"]

#: Passes that only our kernels for processors need: products in the order and the parts that caches and cores like,
#: reductions cut for threads, walks in place of sorts, kernels cut where caches and arenas are small.
_FOR_PROCESSORS = frozenset(
    {
        "swap-products",
        "relabel-convolutions",
        "expand-vector-products",
        "split-components",
        "split-products",
        "split-reductions",
        "fuse-places",
        "compute-early",
    }
)


def lower_for(module: Module, machine: Machine | Placement, config: Config | None = None) -> Lowered:
    """Lower a per-device module for ``machine``, its collectives scheduled beside what computes there; without a
    `Placement` devices lie on the machine by default.

    Raises `UnsupportedError` as `lower` does. Example: on ``h100-dgx`` the scores of attention have no buffer; on
    ``host`` the steps are those of the executable.
    """
    config = config or Config()
    described = machine.machine if isinstance(machine, Placement) else machine
    if described.device.kind == "cpu":
        return lower(module, config)
    return lower_with(module, accelerator_passes(machine, config), config)


def accelerator_passes(machine: Machine | Placement, config: Config) -> tuple[Pass, ...]:
    """What is done to a module for a described accelerator, in order."""
    described = machine.machine if isinstance(machine, Placement) else machine
    overlap = overlap_on(machine, config)
    eager = overlap is not None and overlap.transfers > 0
    attention = (FuseAttention(),) if described.device.fused_attention else ()
    return device_passes(overlap, attention=attention, movement=(FuseMovement(eager=eager),), packed=False)


def device_passes(
    overlap: Overlap | None, *, attention: tuple[Pass, ...] = (), movement: tuple[Pass, ...] = (), packed: bool = True
) -> tuple[Pass, ...]:
    """`PASSES` less those for processors: ``attention`` goes before products are fused, ``movement`` behind all fusion;
    ``overlap`` goes on side by side, and memory is weighed as `Schedule` says where it is ``packed``."""
    eager = overlap is not None and overlap.transfers > 0
    out: list[Pass] = []
    for p in PASSES:
        if isinstance(p, FuseProducts):  # what is computed again on purpose is not the same as before until here
            out += [RemoveMarkers(), *attention]
        if isinstance(p, ConvertAsync):
            out += movement
        if isinstance(p, SimplifyLoops):
            out.append(FetchAhead(overlap))
        if isinstance(p, RemoveMarkers):
            out.append(replace(p, barriers=False))
        elif isinstance(p, Fuse):
            out.append(replace(p, stacks=False))
        elif isinstance(p, SimplifyLoops):
            out.append(replace(p, positions=True))
        elif isinstance(p, ConvertAsync):
            out.append(replace(p, overlap=overlap))
        elif isinstance(p, Schedule):
            out.append(replace(p, overlap=overlap, packed=packed))
        elif isinstance(p, FuseProducts | MergeKernels):
            out.append(replace(p, eager=eager))
        elif p.name not in _FOR_PROCESSORS:
            out.append(p)
    return tuple(out)


def overlap_on(machine: Machine | Placement, config: Config) -> Overlap | None:
    """What goes on side by side on ``machine``; None where ``config`` wants nothing to."""
    if config.overlap == "never":
        return None
    placement = machine if isinstance(machine, Placement) else None
    described = machine.machine if isinstance(machine, Placement) else machine
    transfers = described.device.transfers
    if config.overlap == "always":
        transfers = max(1, transfers)
    return Overlap(
        described,
        transfers,
        everything=config.overlap == "always",
        memory=config.overlap_memory if transfers else 1.0,
        memory_bytes=described.device.memory_bytes,
        placement=placement,
        queued=described.device.queued,
    )
