"""The lowering pipeline: from a per-device module to steps with a buffer plan."""

from __future__ import annotations

import time
from dataclasses import replace

from shardc.compiler.lower.buffers.assign_buffers import assign_buffers
from shardc.compiler.lower.buffers.check_plan import check_plan
from shardc.compiler.lower.buffers.linearise import linearise
from shardc.compiler.lower.buffers.share_results import share_results
from shardc.compiler.lower.expand.canonicalise_collectives import CanonicaliseCollectives
from shardc.compiler.lower.expand.expand_checks import ExpandChecks
from shardc.compiler.lower.expand.expand_custom_calls import ExpandCustomCalls
from shardc.compiler.lower.expand.expand_ops import ExpandOps
from shardc.compiler.lower.expand.expand_permutes import ExpandPermutes
from shardc.compiler.lower.expand.expand_powers import ExpandPowers
from shardc.compiler.lower.expand.expand_reducers import ExpandReducers
from shardc.compiler.lower.expand.expand_vector_products import ExpandVectorProducts
from shardc.compiler.lower.expand.inline_calls import InlineCalls
from shardc.compiler.lower.expand.join_pairs import JoinPairs
from shardc.compiler.lower.expand.pair_transfers import PairTransfers
from shardc.compiler.lower.expand.remove_markers import RemoveMarkers
from shardc.compiler.lower.expand.resolve_groups import ResolveGroups
from shardc.compiler.lower.expand.select_large_updates import SelectLargeUpdates
from shardc.compiler.lower.expand.select_scatters import SelectScatters
from shardc.compiler.lower.fuse.compute_early import ComputeEarly
from shardc.compiler.lower.fuse.compute_once import compute_once
from shardc.compiler.lower.fuse.fuse import Fuse
from shardc.compiler.lower.fuse.fuse_places import FusePlaces
from shardc.compiler.lower.fuse.fuse_products import FuseProducts
from shardc.compiler.lower.fuse.merge_kernels import MergeKernels
from shardc.compiler.lower.host_memory.join_moves import JoinMoves
from shardc.compiler.lower.host_memory.place_values import PlaceValues
from shardc.compiler.lower.lowered import Constants, Lowered, Once
from shardc.compiler.lower.schedule.alternate_buffers import AlternateBuffers
from shardc.compiler.lower.schedule.convert_async import ConvertAsync
from shardc.compiler.lower.schedule.order_for_memory import OrderForMemory
from shardc.compiler.lower.schedule.schedule import Schedule
from shardc.compiler.lower.simplify.count_trips import CountTrips
from shardc.compiler.lower.simplify.relabel_convolutions import RelabelConvolutions
from shardc.compiler.lower.simplify.simplify_loops import SimplifyLoops
from shardc.compiler.lower.simplify.split_components import SplitComponents
from shardc.compiler.lower.simplify.split_products import SplitProducts
from shardc.compiler.lower.simplify.split_reductions import SplitReductions
from shardc.compiler.lower.simplify.swap_products import SwapProducts
from shardc.compiler.lower.simplify.unroll_loops import UnrollLoops
from shardc.compiler.measured import program_key
from shardc.compiler.tuning import DEFAULT, Tuning
from shardc.hlo.config import Config
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.opset import COLLECTIVES
from shardc.hlo.passes import Pass, PassTimes, run_pipeline
from shardc.hlo.simplify.eliminate_common import EliminateCommon
from shardc.hlo.simplify.eliminate_dead import EliminateDead
from shardc.hlo.simplify.fold_constants import FoldConstants
from shardc.hlo.simplify.simplify import Simplify
from shardc.hlo.transforms.separate_collectives import SeparateCollectives
from shardc.partitioner.optimise.combine_collectives import CombineCollectives
from shardc.partitioner.optimise.loops.hoist_arithmetic import HoistArithmetic
from shardc.partitioner.optimise.move_scales import MoveScales
from shardc.partitioner.optimise.scatter_onto import ScatterOnto

__all__ = ["PASSES", "WITHOUT_FOLDING", "apply_overlap", "apply_tuning", "lower", "lower_with"]

#: What `lower` does to the module, in order.
PASSES: tuple[Pass, ...] = (
    JoinPairs(),
    ExpandPermutes(),
    ExpandCustomCalls(),
    ExpandOps(),
    InlineCalls(),
    SeparateCollectives(opcodes=("all-reduce",)),
    RemoveMarkers(),
    ExpandChecks(),
    EliminateCommon(),
    EliminateDead(),
    Simplify(),
    UnrollLoops(),
    Simplify(),
    ExpandPowers(),
    MoveScales(),
    ScatterOnto(),
    HoistArithmetic(),
    EliminateCommon(),
    PairTransfers(),
    CombineCollectives(opcodes=("all-reduce",)),
    ResolveGroups(),
    ExpandReducers(),
    CanonicaliseCollectives(),
    SimplifyLoops(),
    FoldConstants(),
    Simplify(),
    EliminateCommon(),
    EliminateDead(),
    CountTrips(),
    SelectScatters(),
    SelectLargeUpdates(),
    PlaceValues(),
    SwapProducts(),
    RelabelConvolutions(),
    ExpandVectorProducts(),
    SplitProducts(),
    SplitComponents(),
    SplitReductions(),
    FusePlaces(),
    FuseProducts(),
    Fuse(),
    MergeKernels(),
    JoinMoves(),
    OrderForMemory(),
    ComputeEarly(),
    AlternateBuffers(),
    ConvertAsync(),
    Schedule(),
)


#: The same, but whatever the program computes is computed when it runs.
WITHOUT_FOLDING = tuple(p for p in PASSES if not isinstance(p, FoldConstants))


def apply_tuning(passes: tuple[Pass, ...], tuning: Tuning) -> tuple[Pass, ...]:
    """The passes with what ``tuning`` says of kernels that are fused and merged."""
    if tuning == DEFAULT:
        return passes
    kept = (p for p in passes if tuning.merged or not isinstance(p, MergeKernels))
    return tuple(replace(p, limit=tuning.fused) if isinstance(p, Fuse) else p for p in kept)


def apply_overlap(passes: tuple[Pass, ...], module: Module, config: Config) -> tuple[Pass, ...]:
    """The passes with what may go on side by side where the program will run."""
    if not any(i.opcode in COLLECTIVES for i in module.instructions()):
        return passes
    from shardc.compiler.lower.schedule.overlap import overlap_of  # with what knows machines and networks

    overlap = overlap_of(config, program_key(module) if config.profile is not None else "")
    eager = overlap is not None and overlap.transfers > 0

    def told(p: Pass) -> Pass:
        if isinstance(p, ConvertAsync | Schedule) and p.overlap is None:
            return replace(p, overlap=overlap)
        return replace(p, eager=eager) if isinstance(p, MergeKernels | FuseProducts) else p

    return tuple(map(told, passes))


def lower(module: Module, config: Config | None = None, *, passes: tuple[Pass, ...] = PASSES) -> Lowered:
    """Fuse, order and lay out a per-device module (or one for a single device).

    Raises `UnsupportedError` for what cannot be compiled. Needs no hardware, and the answer depends on the module
    only, so memory and time can be predicted for any number of devices.
    """
    config = config or Config()
    return lower_with(module, apply_overlap(passes, module, config), config)


def lower_with(
    module: Module, passes: tuple[Pass, ...], config: Config, *, alignment: int = 1, shared: bool = True
) -> Lowered:
    """The same with exactly these passes. Kernels take parts of arguments where they lie, at multiples of ``alignment``
    bytes; where devices of a process have no memory in common, nothing is ``shared``."""
    times = PassTimes()
    module = run_pipeline(module, passes, config, times=times)
    start = time.perf_counter()
    linear = linearise(module, alignment)
    plan = assign_buffers(linear)
    plan = share_results(linear, plan) if shared else plan
    if config.check:
        check_plan(linear, plan)
    times.add("assign-buffers", time.perf_counter() - start)
    return Lowered(
        module, linear.steps, linear.parameters, linear.results, plan, Constants(linear.constants), times.seconds,
        compute_once(module, linear, plan) if shared else Once(),
    )  # fmt: skip
