"""Propagation: from a few annotations to a sharding for every value.

A table of contents: convert notations to one mesh, separate unrelated uses, build the graph, run the work list,
write the outcome back.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardc.hlo.config import Config
from shardc.hlo.ir import Instruction, Module
from shardc.hlo.mesh import Mesh
from shardc.sharding.constraints import apply_constraints
from shardc.sharding.convert import with_axis_shardings
from shardc.sharding.engine import Engine, PropagationOptions
from shardc.sharding.finish import attach_shardings, even_interface
from shardc.sharding.graph import build_graph
from shardc.sharding.prepare import Copies, split_calls, split_constants
from shardc.sharding.provenance import Provenance

__all__ = ["Propagation", "PropagationOptions", "propagate"]


@dataclass(frozen=True, slots=True)
class Propagation:
    """``module`` has a closed axis-based sharding on every instruction; ``provenance`` says where they came from."""

    module: Module
    provenance: Provenance


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
    module = with_axis_shardings(module)
    copies: Copies = {}
    prepared = split_constants(split_calls(module, copies), copies)
    graph = build_graph(prepared, module.mesh or Mesh())
    apply_constraints(graph)
    engine = Engine(graph, options or PropagationOptions())
    engine.run()
    shardings = even_interface(graph, engine.shardings, prepared)
    finished, places = attach_shardings(prepared, graph, shardings, copies)
    labels = {p: n for n, p in zip(module.arg_names, prepared.parameters, strict=False) if n}
    names = _names(prepared, places, labels)
    return Propagation(finished, Provenance(graph, engine.steps, shardings, names, labels))


def _names(
    prepared: Module, places: dict[Instruction, Instruction], labels: dict[Instruction, str]
) -> dict[str, Instruction]:
    """Names that people may ask for, by prepared instruction: arguments, then instructions, then op names."""
    out = {name: p for p, name in reversed(labels.items())}
    for i in prepared.instructions():
        if i in places:
            out.setdefault(places[i].name, i)
    for i in prepared.entry:
        if i.metadata is not None and i.metadata.op_name:
            out.setdefault(i.metadata.op_name, i)
    return out
