"""Propagation: from a few annotations to a sharding for every value.

A table of contents: convert notations to one mesh, separate unrelated uses, build the graph, run the work list,
write the outcome back.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shardc.hlo.config import Config
from shardc.hlo.ir.build import uncalled_computations
from shardc.hlo.ir.ir import Instruction, Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.passes import pause_collector
from shardc.hlo.transforms.expand_sliced_permutes import open_permutes
from shardc.sharding.notations.annotate import named_results
from shardc.sharding.notations.tile_assignments import convert_to_axes
from shardc.sharding.prepare.broadcast_placed import BroadcastPlaced
from shardc.sharding.prepare.close_pairs import ClosePairs
from shardc.sharding.prepare.split_calls import Copies, split_calls
from shardc.sharding.prepare.split_constants import split_constants
from shardc.sharding.propagation.constraints import apply_constraints
from shardc.sharding.propagation.engine import Engine
from shardc.sharding.propagation.export import PropagationOutcome
from shardc.sharding.propagation.finish import attach_shardings, even_interface
from shardc.sharding.propagation.flow import build_graph
from shardc.sharding.propagation.graph import PropagationGraph
from shardc.sharding.propagation.groups import join_groups
from shardc.sharding.propagation.options import PropagationOptions
from shardc.sharding.provenance.history import Provenance

__all__ = ["Propagate", "Propagation", "PropagationOptions", "propagate"]


@dataclass(frozen=True, slots=True)
class Propagation:
    """``module`` has a closed axis-based sharding on every instruction; ``provenance`` says where they came from,
    ``outcome`` puts the shardings onto the program as it was given."""

    module: Module
    provenance: Provenance
    outcome: PropagationOutcome


@dataclass(frozen=True, slots=True)
class Propagate:
    """`propagate` as a pass, without the history."""

    options: PropagationOptions = field(default_factory=PropagationOptions)
    name: str = "propagate"
    why: str = "derives a sharding for every value from a few annotations"

    def run(self, module: Module) -> Module:
        return propagate(module, options=self.options).module


@pause_collector()
def propagate(
    module: Module, config: Config | None = None, *, options: PropagationOptions | None = None
) -> Propagation:
    """Decide the sharding of every value of a global program.

    In the result ``module.mesh`` is set and every instruction of the entry and of every computation that is called,
    looped or branched to carries a closed `Sharding` over it (a tuple of them, one per leaf, for tuple shapes);
    computations applied by reductions and the like carry none. A loop's carry, parameters and the tuple at the end of
    its body have equal shardings. The entry's root has the shardings of the results.

    Raises `AnnotationError` for shardings that contradict each other or the mesh, and `UnsupportedError` for
    operations that cannot be partitioned. ``config`` is accepted for the pipelines' sake and changes nothing.
    """
    del config
    module = convert_to_axes(open_permutes(ClosePairs().run(module)))
    module = BroadcastPlaced().run(module)
    copies: Copies = {}
    options = options or PropagationOptions()
    others = uncalled_computations(module) if options.every_function else ()
    flat = module if options.share_functions else split_calls(module, copies, others)
    prepared = split_constants(flat, copies)
    graph = _import(prepared, options)
    engine = Engine(graph, options)
    engine.run()
    shardings = even_interface(graph, engine.shardings, prepared, strict=options.strict_interface)
    finished, places = attach_shardings(prepared, graph, shardings, copies)
    labels = {p: n for n, p in zip(module.arg_names, prepared.parameters, strict=False) if n}
    names = _names(prepared, places, labels)
    outcome = PropagationOutcome(module, prepared, copies, graph, shardings, engine.changed, options, engine.shardings)
    return Propagation(finished, Provenance(graph, engine.steps, shardings, names, labels), outcome)


def _import(module: Module, options: PropagationOptions) -> PropagationGraph:
    """The graph with what the program says besides shardings: sizes, constraints, groups."""
    graph = build_graph(module, module.mesh or Mesh(), options)
    graph.without_single_positions()
    apply_constraints(graph)
    join_groups(graph)
    graph.link()
    return graph


def _names(
    prepared: Module, places: dict[Instruction, Instruction], labels: dict[Instruction, str]
) -> dict[str, Instruction]:
    """Names that people may ask for, by prepared instruction: arguments, then instructions, then op names."""
    out: dict[str, Instruction] = {}
    for p, name in labels.items():
        out.setdefault(name, p)
    for i in prepared.instructions():
        if i in places:
            out.setdefault(places[i].name, i)
    for name, i in named_results(prepared):
        out.setdefault(name, i)
    for i in prepared.entry:
        if i.metadata is not None and i.metadata.op_name:
            out.setdefault(i.metadata.op_name, i)
    return out
