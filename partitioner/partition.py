"""From a global program to the program that every device runs: the partitioner's table of contents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from shardc.costs.machines.machine import Machine
from shardc.hlo.config import Config
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.build import reachable_computations
from shardc.hlo.ir.ir import Alias, Computation, Instruction, Module
from shardc.hlo.ir.sharding import AnySharding, Sharding
from shardc.hlo.ir.types import Shape
from shardc.hlo.passes import Pass, PassTimes, pause_collector, run_pipeline
from shardc.hlo.transforms.host_values import HostValues
from shardc.hlo.transforms.memory_limit import with_memory_limit
from shardc.hlo.transforms.results_on_host import put_results_on_host
from shardc.partitioner.emit.layout import AxisLayout
from shardc.partitioner.finish_loops import finish_loops
from shardc.partitioner.optimise.combine_collectives import CombineCollectives
from shardc.partitioner.optimise.deduplicate_collectives import DeduplicateCollectives
from shardc.partitioner.optimise.drop_equal import DropEqual
from shardc.partitioner.optimise.einsums.decompose_rings import DecomposeRings
from shardc.partitioner.optimise.einsums.window_einsums import WindowEinsums
from shardc.partitioner.optimise.halos.exchange_operands import ExchangeOperands
from shardc.partitioner.optimise.halos.merge_permutes import MergePermutes
from shardc.partitioner.optimise.loops.delay_reductions import DelayReductions
from shardc.partitioner.optimise.loops.hoist_collectives import HoistCollectives
from shardc.partitioner.optimise.loops.prefetch_gathers import PrefetchGathers
from shardc.partitioner.optimise.loops.sink_reductions import SinkReductions
from shardc.partitioner.optimise.move_converts import MoveConverts
from shardc.partitioner.optimise.reassociate import Reassociate
from shardc.partitioner.optimise.scatter_reductions import ScatterReductions
from shardc.partitioner.optimise.simplify_exchanges import SimplifyExchanges
from shardc.partitioner.optimise.slice_first import SliceFirst
from shardc.partitioner.optimise.tidy import Tidy
from shardc.partitioner.options import PartitionOptions
from shardc.partitioner.plan.auto_plan import choose_auto_plan
from shardc.partitioner.plan.choose_plan import choose_plan
from shardc.partitioner.plan.judge import Judge
from shardc.partitioner.plan.plan_budget import budget_of
from shardc.partitioner.plan.plan_reasons import PlanReasons
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
from shardc.partitioner.regions.region import make_plan
from shardc.partitioner.reshard.reorder_devices import reorder_devices
from shardc.partitioner.rewrite.body import partition_computation
from shardc.partitioner.rewrite.context import Context
from shardc.partitioner.rules import RULES
from shardc.partitioner.strategy.decisions import ChosenSplits
from shardc.sharding.axes.device_orders import DEVICE_ORDERS

__all__ = ["OPENING", "PIPELINE", "PREPARATION", "Rewrite", "optimisation", "partition", "pipeline", "write_program"]


def partition(
    module: Module,
    config: Config | None = None,
    *,
    machine: Machine | None = None,
    options: PartitionOptions | None = None,
    times: PassTimes | None = None,
    judge: Judge | None = None,
    tell: Callable[[PlanReasons | str], None] | None = None,
) -> Module:
    """The per-device program of a propagated module.

    Every instruction of ``module`` has a closed axis-based sharding over ``module.mesh``. The result has local
    shapes, collectives with symbolic groups, and ``partitioned`` set; its entry parameters and root keep their global
    shardings, and ``attrs["global_parameters"]`` / ``attrs["global_results"]`` hold the global shapes (parameters
    as they are, results flattened). What moves is chosen for the least modelled time on a ``machine``, else for the
    fewest bytes. With a global ``plan`` it is the best of some by ``judge`` (`choose_plan`), and ``tell`` is given
    the plan's reasons, or with an ``auto`` plan the sentence why layouts stay as propagated. The memory of the options
    goes along with the program: its schedule stays within it, too.
    Raises `UnsupportedError` for what cannot be partitioned, `PlanError` where no plan fits.
    """
    options, config = options or PartitionOptions(), config or Config()
    if options.memory is not None:
        module = with_memory_limit(module, options.memory)

    def run(given: Module, passes: Sequence[Pass], *, dumped: bool = True) -> Module:
        return run_pipeline(given, passes, config if dumped else replace(config, dump_to=None), times=times)

    def finish(
        laid_out: Module,
        chosen: ChosenSplits | None = None,
        memory: float | None = None,
        *,
        fewest: bool = False,
    ) -> Module:
        steps = pipeline(machine, options, chosen, memory, fewest=fewest)[len(OPENING) :]
        if machine is None or judge is None or options.pipelined_loops != "auto" or not _has_loops(laid_out):
            return run(laid_out, steps)
        room = min(n for n in (machine.device.memory_bytes, options.memory, memory) if n is not None)
        made, steps = finish_loops(laid_out, steps, partial(run, dumped=False), judge=judge, room=room)
        return made if config.dump_to is None else run(laid_out, steps)

    if options.plan == "propagated" or module.mesh is None or module.mesh.size == 1:
        if machine is None or judge is None or not _has_loops(module):
            return run(module, pipeline(machine, options))
        return finish(run(module, OPENING))

    opened = run(module, OPENING)
    if options.plan == "auto" and options.memory is None:
        with pause_collector():
            return choose_auto_plan(
                opened,
                machine,
                finish,
                fewest=None if machine is None else partial(finish, fewest=True),
                judge=judge,
                interface=options.interface,
                tell=tell,
            )
    return choose_plan(
        opened,
        machine,
        finish,
        within=lambda room: partial(finish, memory=room),
        budget=budget_of(options.plan),
        memory=options.memory,
        judge=judge,
        interface=options.interface,
        tell=tell,
    )


def _has_loops(module: Module) -> bool:
    return any(i.opcode == "while" for i in module.instructions())


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Replace every global value by its local one and insert collectives; operations are done as ``chosen``."""

    machine: Machine | None = None
    partial_interface: bool = False
    chosen: ChosenSplits | None = None
    name: str = "partition"
    why: str = "rewrites the program into the one that each device runs on its parts"

    def run(self, module: Module) -> Module:
        if module.partitioned:
            raise UnsupportedError("the module is already partitioned", where=module.name)
        if module.mesh is None:
            raise UnsupportedError("the module has no mesh", where=module.name, fix="annotate it, or give --mesh")
        context = Context.over(module.mesh, module, self.machine, self.chosen)
        partial = self.partial_interface
        parameters = [context.layouts(p, partial=partial) for p in module.entry.parameters]
        context = context.following(make_plan(context, RULES, module, parameters))
        return write_program(module, context, partial_interface=partial)


def write_program(module: Module, context: Context, *, partial_interface: bool = False) -> Module:
    """The per-device program, its operations split as the plan of ``context`` says."""
    parameters = [context.layouts(p, partial=partial_interface) for p in module.entry.parameters]
    results = context.layouts(module.entry.root, partial=partial_interface)
    entry = partition_computation(context, RULES, module.entry, parameters, results)
    _stamp(context, entry, parameters, results)
    entry = reorder_devices(entry, module.attrs.get(DEVICE_ORDERS, {}))
    local = module.with_(
        computations=reachable_computations(entry),
        entry=entry,
        partitioned=True,
        num_partitions=context.table.mesh.size,
        aliases=_aliases(module, entry),
        attrs=_attrs(module),
    )
    return put_results_on_host(local, HostValues(module).of(module.entry.root))


def _aliases(module: Module, entry: Computation) -> tuple[Alias, ...]:
    """Those whose parameter and result still have one shape; the others are a hint that no longer fits."""

    def part(shape: Shape, path: tuple[int, ...]) -> Shape:
        for i in path:
            shape = shape.elements[i]
        return shape.plain

    return tuple(
        a
        for a in module.aliases
        if part(entry.parameters[a.parameter].shape, a.parameter_index) == part(entry.root.shape, a.output)
    )


def _attrs(module: Module) -> Mapping[str, object]:
    """The header's attributes and the global shapes; a global entry layout no longer holds."""
    kept = {k: v for k, v in module.attrs.items() if k not in ("entry_computation_layout", DEVICE_ORDERS)}
    kept["global_parameters"] = tuple(p.shape for p in module.parameters)
    kept["global_results"] = module.results
    return MappingProxyType(kept)


def _stamp(
    context: Context, entry: Computation, parameters: Sequence[tuple[AxisLayout, ...]], results: Sequence[AxisLayout]
) -> None:
    """The new entry's parameters and root tell their global shardings."""
    table = context.table
    entry.root.sharding = _any(entry.root, [table.to_sharding(x) for x in results])
    for p, layouts in zip(entry.parameters, parameters, strict=True):
        p.sharding = _any(p, [table.to_sharding(x) for x in layouts])


def _any(op: Instruction, shardings: list[Sharding]) -> AnySharding:
    return tuple(shardings) if op.shape.is_tuple else shardings[0]


#: What a program goes through before its layouts are looked at: calls are opened.
OPENING: tuple[Pass, ...] = (NestSubAxes(), FillEmpty(), RewriteNamedCalls(), InlineShardedCalls(), ShareEqual())

#: What prepares a propagated program: operations are rewritten so that their parts can be computed separately.
PREPARATION: tuple[Pass, ...] = (
    *OPENING,
    SplitRecurrences(),
    FoldSlices(),
    FoldJoins(),
    SelectUpdates(),
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
)


def optimisation(machine: Machine | None, options: PartitionOptions, memory: float | None = None) -> tuple[Pass, ...]:
    """The passes that make collectives fewer, and those that hide them; loops keep more only within ``memory``."""
    return (
        MoveConverts(),
        SimplifyExchanges(),
        DropEqual(),
        ScatterReductions(),
        HoistCollectives(machine, memory=memory),
        SliceFirst(),
        MoveConverts(),
        Reassociate(),
        SinkReductions(),
        DeduplicateCollectives(),
        ExchangeOperands(),
        MergePermutes(),
        Tidy(),
        PrefetchGathers(options.pipelined_loops, machine, memory),
        DelayReductions(options.pipelined_loops, machine, memory),
        WindowEinsums(options.windowed_einsum, machine),
        DecomposeRings(options.decomposed_rings),
        CombineCollectives(),
    )


def pipeline(
    machine: Machine | None,
    options: PartitionOptions,
    chosen: ChosenSplits | None = None,
    memory: float | None = None,
    *,
    fewest: bool = False,
) -> tuple[Pass, ...]:
    """All passes of `partition`, in order. With ``fewest``, what moves is chosen for the fewest bytes, and a machine
    decides about loops only."""
    rewrite = Rewrite(None if fewest else machine, options.partial_interface, chosen)
    return (*PREPARATION, WidenHalos(machine), ShareReads(), rewrite, *optimisation(machine, options, memory))


PIPELINE = pipeline(None, PartitionOptions())
"""What `partition` does when nothing is asked for."""
