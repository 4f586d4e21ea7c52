"""All passes: the list that `shardc opt` knows.

A pass that is not here cannot be run alone; a test holds the list equal to the classes in the tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from shardc.compiler.lower.canonicalise_collectives import CanonicaliseCollectives
from shardc.compiler.lower.compute_early import ComputeEarly
from shardc.compiler.lower.convert_async import ConvertAsync
from shardc.compiler.lower.count_trips import CountTrips
from shardc.compiler.lower.expand_checks import ExpandChecks
from shardc.compiler.lower.expand_custom_calls import ExpandCustomCalls
from shardc.compiler.lower.expand_ops import ExpandOps
from shardc.compiler.lower.expand_reducers import ExpandReducers
from shardc.compiler.lower.expand_vector_products import ExpandVectorProducts
from shardc.compiler.lower.fuse import Fuse
from shardc.compiler.lower.fuse_attention import FuseAttention
from shardc.compiler.lower.fuse_movement import FuseMovement
from shardc.compiler.lower.fuse_products import FuseProducts
from shardc.compiler.lower.inline_calls import InlineCalls
from shardc.compiler.lower.join_pairs import JoinPairs
from shardc.compiler.lower.merge_kernels import MergeKernels
from shardc.compiler.lower.open_permutes import OpenPermutes
from shardc.compiler.lower.order import Order
from shardc.compiler.lower.pair_transfers import PairTransfers
from shardc.compiler.lower.relabel_convolutions import RelabelConvolutions
from shardc.compiler.lower.remove_markers import RemoveMarkers
from shardc.compiler.lower.resolve_groups import ResolveGroups
from shardc.compiler.lower.schedule import Schedule
from shardc.compiler.lower.select_scatters import SelectScatters
from shardc.compiler.lower.separate_reductions import SeparateReductions
from shardc.compiler.lower.simplify_loops import SimplifyLoops
from shardc.compiler.lower.split_products import SplitProducts
from shardc.compiler.lower.split_reductions import SplitReductions
from shardc.compiler.lower.swap_products import SwapProducts
from shardc.compiler.lower.unroll_loops import UnrollLoops
from shardc.hlo.passes import Pass
from shardc.hlo.simplify.eliminate import EliminateCommon, EliminateDead
from shardc.hlo.simplify.fold_constants import FoldConstants
from shardc.hlo.simplify.simplify import Simplify
from shardc.partitioner.contract_unflattened import ContractUnflattened
from shardc.partitioner.expand_split import ExpandSplit
from shardc.partitioner.fill_empty import FillEmpty
from shardc.partitioner.fold_pads import FoldPads
from shardc.partitioner.fold_slices import FoldSlices
from shardc.partitioner.inline_calls import InlineCalls as InlineShardedCalls
from shardc.partitioner.name_batches import NameBatches
from shardc.partitioner.nest_sub_axes import NestSubAxes
from shardc.partitioner.open_calls import OpenCalls
from shardc.partitioner.open_scatters import OpenScatters
from shardc.partitioner.optimise.combine import CombineCollectives
from shardc.partitioner.optimise.decompose_rings import DecomposeRings
from shardc.partitioner.optimise.deduplicate import DeduplicateCollectives
from shardc.partitioner.optimise.delay_reductions import DelayReductions
from shardc.partitioner.optimise.drop_equal import DropEqual
from shardc.partitioner.optimise.hoist_arithmetic import HoistArithmetic
from shardc.partitioner.optimise.hoist_collectives import HoistCollectives
from shardc.partitioner.optimise.move_converts import MoveConverts
from shardc.partitioner.optimise.move_scales import MoveScales
from shardc.partitioner.optimise.prefetch_gathers import PrefetchGathers
from shardc.partitioner.optimise.reassociate import Reassociate
from shardc.partitioner.optimise.scatter_onto import ScatterOnto
from shardc.partitioner.optimise.scatter_reductions import ScatterReductions
from shardc.partitioner.optimise.simplify_exchanges import SimplifyExchanges
from shardc.partitioner.optimise.sink_reductions import SinkReductions
from shardc.partitioner.optimise.slice_first import SliceFirst
from shardc.partitioner.optimise.tidy import Tidy
from shardc.partitioner.optimise.window_einsums import WindowEinsums
from shardc.partitioner.partition import Rewrite
from shardc.partitioner.reduce_unflattened import ReduceUnflattened
from shardc.partitioner.search_unflattened import SearchUnflattened
from shardc.partitioner.share_equal import ShareEqual
from shardc.partitioner.sort_beginnings import SortBeginnings
from shardc.partitioner.split_transforms import SplitTransforms
from shardc.sharding.propagate import Propagate
from shardc.sharding.refine import RefineShardings

__all__ = ["PASSES"]

#: By floor, lowest first.
_LISTED: tuple[Pass, ...] = (
    # hlo
    EliminateCommon(),
    EliminateDead(),
    FoldConstants(),
    Simplify(),
    # sharding
    Propagate(),
    RefineShardings(),
    # partitioner
    ContractUnflattened(),
    ExpandSplit(),
    FillEmpty(),
    FoldPads(),
    FoldSlices(),
    InlineShardedCalls(),
    NameBatches(),
    NestSubAxes(),
    OpenCalls(),
    OpenScatters(),
    CombineCollectives(),
    DecomposeRings(),
    DeduplicateCollectives(),
    DelayReductions(),
    DropEqual(),
    HoistArithmetic(),
    HoistCollectives(),
    MoveConverts(),
    MoveScales(),
    PrefetchGathers(),
    Reassociate(),
    ScatterOnto(),
    ScatterReductions(),
    SimplifyExchanges(),
    SinkReductions(),
    SliceFirst(),
    Tidy(),
    WindowEinsums(),
    Rewrite(),
    ReduceUnflattened(),
    SearchUnflattened(),
    ShareEqual(),
    SortBeginnings(),
    SplitTransforms(),
    # compiler
    CanonicaliseCollectives(),
    ComputeEarly(),
    ConvertAsync(),
    CountTrips(),
    ExpandChecks(),
    ExpandCustomCalls(),
    ExpandOps(),
    ExpandReducers(),
    ExpandVectorProducts(),
    Fuse(),
    FuseAttention(),
    FuseMovement(),
    FuseProducts(),
    InlineCalls(),
    JoinPairs(),
    MergeKernels(),
    OpenPermutes(),
    Order(),
    PairTransfers(),
    RelabelConvolutions(),
    RemoveMarkers(),
    ResolveGroups(),
    Schedule(),
    SelectScatters(),
    SeparateReductions(),
    SimplifyLoops(),
    SplitProducts(),
    SplitReductions(),
    SwapProducts(),
    UnrollLoops(),
)

#: By name, with the options that they have by default.
PASSES: Mapping[str, Pass] = MappingProxyType({p.name: p for p in _LISTED})
