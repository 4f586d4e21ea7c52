"""PyTorch in: a module or an exported program becomes a module of ours, with the names of its ``state_dict``.

`torch.export` and its decompositions leave a graph of core ATen operators, which changes nothing in place. JAX traces
that graph (`tracer`) and lowers it to StableHLO; nothing is computed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardc.frontends.jax.frontend import JaxLowering, lower, require_jax
from shardc.frontends.torch.draw_keys import Draws, draws_numbers
from shardc.frontends.torch.exported import core_aten, decomposed, graph_of
from shardc.frontends.torch.packages import require_torch
from shardc.frontends.torch.places import NodePlace, with_places
from shardc.frontends.torch.signature import TorchSignature, Update
from shardc.frontends.torch.stream import next_state, stream_state, with_stream
from shardc.frontends.torch.tracer import GraphTracer
from shardc.hlo.ir.ir import Alias, Module
from shardc.hlo.transforms.frontend_of import from_frontend

__all__ = ["TorchProgram", "lower_named", "program_from_torch"]


@dataclass(frozen=True, slots=True)
class TorchProgram:
    """A module of ours, how its values belong to a module of PyTorch's, and a digest for the cache."""

    module: Module
    signature: TorchSignature
    content: str


def program_from_torch(
    source: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, seed: Any = None
) -> TorchProgram:
    """The program of ``source``, a ``torch.nn.Module`` called with ``args`` and ``kwargs``, or a
    ``torch.export.ExportedProgram``, which has its arguments already. ``seed`` begins its random numbers.

    Raises EnvironmentProblem without PyTorch, InputError for other objects, UnsupportedError for operators that are
    not known, with the module's path and the user's line.
    """
    torch, jax = require_torch(), require_jax()
    exported = core_aten(torch, source, args, kwargs)
    graph = graph_of(torch, decomposed(torch, exported))
    drawn = seed is not None and draws_numbers(torch, graph.graph_module)
    graph = with_stream(graph, stream_state(torch, seed)) if drawn else graph
    signature, tracer = graph.signature, GraphTracer(torch, jax)

    def run(*flat: Any) -> tuple[Any, ...]:
        state = flat[len(signature.states) - 1] if drawn else None
        tracer.draws = None if state is None else Draws.of_seed(jax, *state)
        results = tracer.run(graph.graph_module, [None if p is None else flat[p] for p in graph.placeholders])
        made = tuple(results[k] for k in graph.results)
        return made if state is None else (*made, next_state(jax, state))

    run.__name__ = type(source).__name__
    module, kept, content = lower_named(run, graph.avals(jax), signature.names, signature.updates, tracer.places)
    owner = source if isinstance(source, torch.nn.Module) else None
    return TorchProgram(module, replace(signature, kept=kept, module=owner), content)


def lower_named(
    run: Callable[..., Any], avals: Sequence[Any], names: Sequence[str], updates: Sequence[Update],
    places: Sequence[NodePlace],
) -> tuple[Module, tuple[int, ...], str]:  # fmt: skip
    """``run`` lowered for ``avals``: a module whose arguments have ``names`` and where ``updates`` are aliases; which
    arguments it takes; and a digest for the cache. ``places`` are those that ``run`` collects while it is traced."""
    with require_jax().enable_x64(True):
        lowering: JaxLowering = lower(run, args=avals)
        digest = lowering.content()
        read = lowering.read()
    position = {flat: k for k, flat in enumerate(read.kept)}
    aliases = tuple(Alias((u.result,), position[u.argument]) for u in updates if u.argument in position)
    named = tuple(names[flat] for flat in read.kept)
    module = from_frontend(with_places(read.module, places), "torch")
    module = module.with_(arg_names=named, aliases=aliases, donors=())
    content = hashlib.sha256(repr((digest, named, list(places), aliases)).encode()).hexdigest() if digest else ""
    return module, read.kept, content
