"""All passes: the list that `shardc opt` knows.

A pass that is not here cannot be run alone; a test holds the list equal to the classes in the tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

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
from shardc.compiler.lower.fuse.fuse import Fuse
from shardc.compiler.lower.fuse.fuse_attention import FuseAttention
from shardc.compiler.lower.fuse.fuse_movement import FuseMovement
from shardc.compiler.lower.fuse.fuse_places import FusePlaces
from shardc.compiler.lower.fuse.fuse_products import FuseProducts
from shardc.compiler.lower.fuse.merge_kernels import MergeKernels
from shardc.compiler.lower.host_memory.fetch_ahead import FetchAhead
from shardc.compiler.lower.host_memory.join_moves import JoinMoves
from shardc.compiler.lower.host_memory.place_values import PlaceValues
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
from shardc.hlo.passes import Pass
from shardc.hlo.simplify.eliminate_common import EliminateCommon
from shardc.hlo.simplify.eliminate_dead import EliminateDead
from shardc.hlo.simplify.fold_constants import FoldConstants
from shardc.hlo.simplify.simplify import Simplify
from shardc.hlo.transforms.copy_loop_carries import CopyLoopCarries
from shardc.hlo.transforms.roll_loops import RollLoops
from shardc.hlo.transforms.separate_collectives import SeparateCollectives
from shardc.hlo.transforms.unwrap_single_tuples import UnwrapSingleTuples
from shardc.partitioner.optimise.combine_collectives import CombineCollectives
from shardc.partitioner.optimise.deduplicate_collectives import DeduplicateCollectives
from shardc.partitioner.optimise.drop_equal import DropEqual
from shardc.partitioner.optimise.einsums.decompose_rings import DecomposeRings
from shardc.partitioner.optimise.einsums.window_einsums import WindowEinsums
from shardc.partitioner.optimise.halos.exchange_operands import ExchangeOperands
from shardc.partitioner.optimise.halos.merge_permutes import MergePermutes
from shardc.partitioner.optimise.loops.delay_reductions import DelayReductions
from shardc.partitioner.optimise.loops.hoist_arithmetic import HoistArithmetic
from shardc.partitioner.optimise.loops.hoist_collectives import HoistCollectives
from shardc.partitioner.optimise.loops.prefetch_gathers import PrefetchGathers
from shardc.partitioner.optimise.loops.sink_reductions import SinkReductions
from shardc.partitioner.optimise.move_converts import MoveConverts
from shardc.partitioner.optimise.move_scales import MoveScales
from shardc.partitioner.optimise.reassociate import Reassociate
from shardc.partitioner.optimise.scatter_onto import ScatterOnto
from shardc.partitioner.optimise.scatter_reductions import ScatterReductions
from shardc.partitioner.optimise.simplify_exchanges import SimplifyExchanges
from shardc.partitioner.optimise.slice_first import SliceFirst
from shardc.partitioner.optimise.tidy import Tidy
from shardc.partitioner.partition import Rewrite
from shardc.partitioner.prepare.contract_unflattened import ContractUnflattened
from shardc.partitioner.prepare.expand_split import ExpandSplit
from shardc.partitioner.prepare.fill_empty import FillEmpty
from shardc.partitioner.prepare.fold_joins import FoldJoins
from shardc.partitioner.prepare.fold_pads import FoldPads
from shardc.partitioner.prepare.fold_slices import FoldSlices
from shardc.partitioner.prepare.inline_sharded_calls import InlineShardedCalls
from shardc.partitioner.prepare.join_transforms import JoinTransforms
from shardc.partitioner.prepare.name_batches import NameBatches
from shardc.partitioner.prepare.nest_sub_axes import NestSubAxes
from shardc.partitioner.prepare.reads.share_reads import ShareReads
from shardc.partitioner.prepare.recurrences.split_recurrences import SplitRecurrences
from shardc.partitioner.prepare.reduce_unflattened import ReduceUnflattened
from shardc.partitioner.prepare.rewrite_named_calls import RewriteNamedCalls
from shardc.partitioner.prepare.search_unflattened import SearchUnflattened
from shardc.partitioner.prepare.select_updates import SelectUpdates
from shardc.partitioner.prepare.share_equal import ShareEqual
from shardc.partitioner.prepare.sorts.join_payloads import JoinPayloads
from shardc.partitioner.prepare.sorts.select_places import SelectPlaces
from shardc.partitioner.prepare.sorts.sort_beginnings import SortBeginnings
from shardc.partitioner.prepare.split_transforms import SplitTransforms
from shardc.partitioner.prepare.wide.widen_halos import WidenHalos
from shardc.sharding.prepare.broadcast_placed import BroadcastPlaced
from shardc.sharding.prepare.close_pairs import ClosePairs
from shardc.sharding.prepare.split_calls import SplitCalls
from shardc.sharding.prepare.split_constants import SplitConstants
from shardc.sharding.propagate import Propagate
from shardc.sharding.propagation.propagate_once import PropagateOnce

__all__ = ["PASSES"]

#: By floor, lowest first, each in the order of its pipelines; what other pipelines have instead goes behind.
_LISTED: tuple[Pass, ...] = (
    # hlo/simplify
    EliminateCommon(),
    EliminateDead(),
    Simplify(),
    FoldConstants(),
    # hlo/transforms
    RollLoops(),
    SeparateCollectives(),
    UnwrapSingleTuples(),
    CopyLoopCarries(),
    # sharding
    ClosePairs(),
    BroadcastPlaced(),
    SplitCalls(),
    SplitConstants(),
    Propagate(),
    PropagateOnce(),
    # partitioner/prepare
    NestSubAxes(),
    FillEmpty(),
    RewriteNamedCalls(),
    InlineShardedCalls(),
    ShareEqual(),
    SplitRecurrences(),
    SelectUpdates(),
    FoldSlices(),
    FoldJoins(),
    FoldPads(),
    NameBatches(),
    ContractUnflattened(),
    ReduceUnflattened(),
    SearchUnflattened(),
    JoinPayloads(),
    SelectPlaces(),
    SortBeginnings(),
    ExpandSplit(),
    JoinTransforms(),
    SplitTransforms(),
    WidenHalos(),
    ShareReads(),
    # partitioner
    Rewrite(),
    # partitioner/optimise
    MoveConverts(),
    SimplifyExchanges(),
    DropEqual(),
    ScatterReductions(),
    HoistCollectives(),
    SliceFirst(),
    Reassociate(),
    SinkReductions(),
    DeduplicateCollectives(),
    ExchangeOperands(),
    MergePermutes(),
    Tidy(),
    MoveScales(),
    ScatterOnto(),
    HoistArithmetic(),
    PrefetchGathers(),
    DelayReductions(),
    WindowEinsums(),
    DecomposeRings(),
    CombineCollectives(),
    # compiler/lower
    JoinPairs(),
    ExpandPermutes(),
    ExpandCustomCalls(),
    ExpandOps(),
    InlineCalls(),
    RemoveMarkers(),
    ExpandChecks(),
    UnrollLoops(),
    PairTransfers(),
    ExpandPowers(),
    ResolveGroups(),
    ExpandReducers(),
    CanonicaliseCollectives(),
    SimplifyLoops(),
    CountTrips(),
    SelectScatters(),
    SelectLargeUpdates(),
    FetchAhead(),
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
    FuseAttention(),
    FuseMovement(),
)

#: By name, with the options that they have by default.
PASSES: Mapping[str, Pass] = MappingProxyType({p.name: p for p in _LISTED})
