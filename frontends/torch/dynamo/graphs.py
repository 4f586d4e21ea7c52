"""A graph of ``torch.compile``, forward or backward, as a module of ours.

PyTorch's AOTAutograd makes the graphs: they have core ATen operators and change nothing in place. Descriptors on their
nodes say what inputs and outputs are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardc.frontends.foreign import number_names
from shardc.frontends.jax.frontend import require_jax
from shardc.frontends.torch.dynamo.names import GraphInput
from shardc.frontends.torch.element_types import numpy_type
from shardc.frontends.torch.exported import is_token
from shardc.frontends.torch.frontend import lower_named
from shardc.frontends.torch.tracer import GraphTracer
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.ir import Module

__all__ = ["SAVED", "DynamoGraph", "GraphResult", "lower_graph", "refuse_break"]

#: What is before the name of a value that the forward keeps for the backward.
SAVED = "saved."


@dataclass(frozen=True, slots=True)
class GraphResult:
    """An output of the graph: result ``number`` of the program, else input ``given`` as it is, else ``value``.

    ``name`` is the node's, ``dtype`` PyTorch's type; ``saved`` says that the output is for the backward only.
    """

    name: str
    number: int | None = None
    given: int | None = None
    value: Any = None
    saved: bool = False
    dtype: Any = None


@dataclass(frozen=True, slots=True)
class DynamoGraph:
    """A module of ours; ``names`` are those of the graph's inputs.

    ``state`` has for each input whether it is a parameter or a buffer, ``kept`` are the inputs that the program takes.
    """

    module: Module
    names: tuple[str, ...]
    state: tuple[bool, ...]
    kept: tuple[int, ...]
    results: tuple[GraphResult, ...]
    content: str


def refuse_break(graph_module: Any) -> None:
    """UnsupportedError where PyTorch ended the graph before the module's end, with the user's line."""
    reason: Any = getattr(graph_module, "compile_subgraph_reason", None)
    if not getattr(reason, "graph_break", False):
        return
    frames = list(getattr(reason, "user_stack", None) or ())
    told = next((line.strip() for line in str(reason.reason).splitlines() if line.strip()), "")
    raise UnsupportedError(
        f"torch.compile breaks the graph: {told}",
        where=f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None,
        fix="write this line with operators of tensors, or compile the parts around it with graph_breaks=True",
    )


def lower_graph(torch: Any, graph_module: Any, inputs: Sequence[GraphInput], title: str) -> DynamoGraph:
    """The program of a graph of AOTAutograd's, whose plain inputs are ``inputs``.

    Raises UnsupportedError for operators that are not known, with the user's line.
    """
    jax = require_jax()
    placeholders = [n for n in graph_module.graph.nodes if n.op == "placeholder"]
    found = [_input(n, inputs) for n in placeholders]
    tensors = [isinstance(n.meta.get("val"), torch.Tensor) and not is_token(n.meta.get("desc")) for n in placeholders]
    results, outputs = _results(graph_module, placeholders)
    tracer = GraphTracer(torch, jax)
    values = [None if t else _number(n.meta.get("val")) for n, t in zip(placeholders, tensors, strict=True)]

    def run(*flat: Any) -> tuple[Any, ...]:
        arrays = iter(flat)
        given = [next(arrays) if t else v for v, t in zip(values, tensors, strict=True)]
        made = tracer.run(graph_module, given)
        return tuple(made[k] for k in outputs)

    run.__name__ = title
    avals = [
        jax.ShapeDtypeStruct(tuple(int(d) for d in n.meta["val"].shape), numpy_type(torch, n.meta["val"].dtype))
        for n, t in zip(placeholders, tensors, strict=True)
        if t
    ]
    names = number_names([i.name for i in found], "#")
    flat = [k for k, t in enumerate(tensors) if t]
    module, kept, content = lower_named(run, avals, [names[k] for k in flat], (), tracer.places)
    return DynamoGraph(
        module, names, tuple(i.state for i in found), tuple(flat[k] for k in kept), results, content
    )  # fmt: skip


def _number(value: Any) -> Any:
    """A size as a number: PyTorch then makes another graph for another size."""
    return int(value) if type(value).__name__ == "SymInt" else value


def _input(node: Any, inputs: Sequence[GraphInput]) -> GraphInput:
    descriptor = node.meta.get("desc")
    kind = type(descriptor).__name__
    if kind == "PlainAOTInput":
        return inputs[int(descriptor.idx)]
    if kind in ("ParamAOTInput", "BufferAOTInput"):
        return GraphInput(descriptor.target, True)
    if kind == "TangentAOTInput":
        return GraphInput(f"gradient[{getattr(descriptor.output, 'idx', node.name)}]", False)
    return GraphInput(f"{SAVED}{node.name}", False)


def _results(graph_module: Any, placeholders: Sequence[Any]) -> tuple[tuple[GraphResult, ...], tuple[int, ...]]:
    """The outputs, and the numbers of those that the program computes."""
    node = next(n for n in graph_module.graph.nodes if n.op == "output")
    given: Mapping[Any, int] = {n: k for k, n in enumerate(placeholders)}
    descriptors = node.meta.get("desc") or [None] * len(node.args[0])
    results: list[GraphResult] = []
    outputs: list[int] = []
    for number, (value, descriptor) in enumerate(zip(node.args[0], descriptors, strict=True)):
        name = getattr(value, "name", "")
        saved = type(descriptor).__name__.startswith("SavedForBackward")
        if is_token(descriptor) or not name:
            results.append(GraphResult("", value=None if name else value))
        elif value in given:
            results.append(GraphResult(name, given=given[value], saved=saved))
        elif not hasattr(value.meta.get("val"), "shape"):
            results.append(GraphResult(name, value=_number(value.meta.get("val"))))
        else:
            results.append(GraphResult(name, number=len(outputs), saved=saved, dtype=value.meta["val"].dtype))
            outputs.append(number)
    return tuple(results), tuple(outputs)
