"""``torch.compile(model, backend="shardc")``: graphs of forward and backward that run on a mesh."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from shardc.collectives.call.stamp import SAME_VALUES
from shardc.frontends.torch.dynamo.graphs import SAVED, DynamoGraph, GraphResult, lower_graph, refuse_break
from shardc.frontends.torch.dynamo.names import GraphInput, graph_inputs
from shardc.frontends.torch.dynamo.resident_values import KeptValues
from shardc.frontends.torch.element_types import as_numpy, as_tensor
from shardc.frontends.torch.operators import decompositions
from shardc.frontends.torch.packages import require_torch
from shardc.frontends.torch.plain_operators import plain_operators
from shardc.frontends.torch.signature import SAME_MODULES
from shardc.frontends.torch.writes import Writes
from shardc.hlo.errors import InputError
from shardc.launcher.arrays.layout import ArrayLayout
from shardc.launcher.arrays.same_values import SameValues
from shardc.launcher.driver.compiled import Compiled, job_config
from shardc.sharding.notations.names import match_names
from shardc.stages.stages import Program

__all__ = ["backend", "registered_backend"]

Call = Callable[..., Any]

log = logging.getLogger("shardc")


def backend(mesh: Any = None, annotations: Mapping[str, Any] | None = None, *, graph_breaks: bool = False) -> Call:
    """Make a backend of ``torch.compile`` that runs graphs on a mesh.

    ``annotations`` maps names of parameters as in ``state_dict``, names of the function's arguments, or globs of them,
    to shardings, as `Program.annotate`; ``mesh`` is its mesh. Parameters stay on the devices between calls, until a
    write changes them. PyTorch's version counters and steps of optimizers report writes, except those through
    ``tensor.data`` or NumPy.
    Values that the backward pass needs from the forward pass stay on their devices. Gradients are returned as whole
    tensors.

    A graph is for one shape of its arguments: PyTorch makes another graph for another shape, up to its
    ``recompile_limit`` of 8, and then runs the function itself. It also runs ``nn.LSTM``, ``GRU`` and ``RNN`` itself,
    unless ``torch._dynamo.config.allow_rnn`` is set. With ``fullgraph=True`` both are errors. With ``graph_breaks``,
    PyTorch runs code that cannot be captured between programs. Each annotation then applies to the programs that have
    its name. Otherwise a break raises `UnsupportedError` with your line, as do operators that shardc lacks. PyTorch
    wraps these errors in its ``BackendCompilerFailed``. Raises `EnvironmentProblem` without the extra ``torch``.

    The name ``"shardc"`` is the same backend: ``torch.compile(model, backend="shardc", options={"mesh": ...})``.

    >>> on_mesh = shardc.torch.backend({"model": 2}, {"0.weight": P("model", None)})
    >>> torch.compile(model, backend=on_mesh)(x).shape
    torch.Size([4, 8])
    """
    torch = require_torch()
    options = _Options(mesh, dict(annotations or {}), graph_breaks)

    def shardc(graph_module: Any, example_inputs: Sequence[Any], **_: Any) -> Any:
        return _compile(torch, options, graph_module, example_inputs)

    return shardc


def registered_backend(
    graph_module: Any, example_inputs: Sequence[Any], *, mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Any:  # fmt: skip
    """What PyTorch calls for ``backend="shardc"``; ``options`` are the arguments of `backend`.

    Raises InputError for options that `backend` lacks, and for a ``mode``.
    """
    given = dict(options or {})
    unknown = sorted(set(given) - {"mesh", "annotations", "graph_breaks"})
    if unknown or mode:
        raise InputError(
            f"unknown option {unknown[0]!r}" if unknown else f"mode {mode!r} is not supported",
            where='torch.compile(..., backend="shardc")',
            fix="use the options mesh, annotations and graph_breaks",
        )
    return backend(**given)(graph_module, example_inputs)


@dataclass(frozen=True, slots=True)
class _Options:
    mesh: Any
    annotations: dict[str, Any]
    graph_breaks: bool


def _compile(torch: Any, options: _Options, graph_module: Any, example_inputs: Sequence[Any]) -> Any:
    """One captured graph: a function that runs it, forward and backward."""
    from torch._dynamo.backends.common import aot_autograd

    if not options.graph_breaks:
        refuse_break(graph_module)
    _warn_of_limit(torch)
    _specialise(torch, example_inputs)
    inputs = graph_inputs(graph_module)
    pair = _ForwardBackward(torch, options, inputs)
    compile_graph = aot_autograd(
        fw_compiler=partial(pair.compile, "forward"),
        bw_compiler=partial(pair.compile, "backward"),
        inference_compiler=partial(pair.compile, "forward"),
        decompositions=decompositions(torch),
    )
    with plain_operators(torch):
        return compile_graph(graph_module, list(example_inputs))


def _warn_of_limit(torch: Any) -> None:
    """Warn where PyTorch makes no further program of the function: it runs other calls itself, and asks nobody."""
    limit, made = torch._dynamo.config.recompile_limit, torch._guards.CompileContext.current_compile_id()
    if made is not None and made.frame_compile_id is not None and made.frame_compile_id + 1 == limit > 1:
        log.warning(
            "torch.compile: this is program %d of one function, and PyTorch makes no more: it runs calls of other "
            "shapes by itself, without the mesh; raise torch._dynamo.config.recompile_limit, or pad to fewer shapes",
            limit,
        )


def _specialise(torch: Any, inputs: Sequence[Any]) -> None:
    """Say that the graph is for these sizes only: PyTorch guards them then, and makes another graph for others."""
    for value in inputs:
        if isinstance(value, torch.SymInt):
            int(value)
        elif isinstance(value, torch.Tensor):
            [int(n) for n in value.shape]


class _ForwardBackward:
    """The forward and the backward of one graph, which share values and layouts."""

    def __init__(self, torch: Any, options: _Options, inputs: Sequence[GraphInput]) -> None:
        self._torch, self._options, self._inputs = torch, options, inputs
        self._values = KeptValues(Writes(torch))
        self._forward: _Runner | None = None

    def compile(self, kind: str, graph_module: Any, example_inputs: Sequence[Any]) -> Any:
        """AOTAutograd calls this with a graph, and gets a function of a list of tensors."""
        from torch._functorch.aot_autograd import make_boxed_func
        from torch._subclasses.fake_tensor import unset_fake_temporarily

        with unset_fake_temporarily():
            graph = lower_graph(self._torch, graph_module, self._inputs, f"torch_{kind}")
        runner = _Runner(self._torch, graph, self._values, partial(self._annotated, kind, graph))
        if kind == "forward":
            self._forward = runner
            runner.annotated = self._annotated(kind, graph)
        return make_boxed_func(runner)

    def _annotated(self, kind: str, graph: DynamoGraph) -> Program:
        """The graph's program with the user's annotations, and those that values of the forward have already."""
        program = Program(graph.module, config=job_config(), seconds={}, content=graph.content)
        known = self._forward.shardings() if kind == "backward" and self._forward is not None else {}
        known = {n: s for n, s in known.items() if n in program.arg_names and s is not None}
        given = {} if kind == "backward" else self._options.annotations
        if self._options.graph_breaks:
            given = {name: spec for name, spec in given.items() if match_names(name, program.arg_names)}
        return program.annotate({**given, **known}, self._options.mesh)


@dataclass
class _Runner:
    """A graph as a function of tensors; it is compiled at its first call."""

    torch: Any
    graph: DynamoGraph
    values: KeptValues
    annotate: Callable[[], Program]
    annotated: Program | None = None
    _found: tuple[Compiled, tuple[ArrayLayout, ...]] | None = field(default=None)
    _called: bool = False

    def _compiled(self) -> tuple[Compiled, tuple[ArrayLayout, ...]]:
        if self._found is None:
            compiled = (self.annotated or self.annotate()).compile()
            executable = compiled.share()
            layouts = tuple(ArrayLayout.of(a, executable.num_devices) for a in executable.arguments)
            self._found = compiled, layouts
        return self._found

    def shardings(self) -> dict[str, Any]:
        """Where the values lie that the backward may take: inputs by name, what is saved by its node."""
        compiled, layouts = self._compiled()
        graph = self.graph
        out = {graph.names[k]: layout.sharding for k, layout in zip(graph.kept, layouts, strict=True)}
        results = compiled.executable.results
        return out | {f"{SAVED}{r.name}": results[r.number].sharding for r in graph.results if r.number is not None}

    def __call__(self, *tensors: Any) -> list[Any]:
        graph = self.graph
        compiled, layouts = self._compiled()
        self.values.forget_freed()
        arguments = [self._array(n, tensors[graph.kept[n]], layout) for n, layout in enumerate(layouts)]
        self._same.compare(f"a call of {compiled.executable.name}")
        self._called = True
        results = compiled.run(arguments)
        out = []
        for r in graph.results:
            if r.number is not None:
                out.append(self._tensor(results[r.number], r))
            elif r.given is not None:
                out.append(tensors[r.given])
            else:
                out.append(r.value)
        return out

    @cached_property
    def _same(self) -> SameValues:
        """Compares what the ranks lay out at the first call."""
        return SameValues(self._compiled()[0].driver.transport)

    @cached_property
    def _needed(self) -> frozenset[int | None]:
        """The inputs that the backward takes too."""
        return frozenset(r.given for r in self.graph.results if r.saved)

    def _array(self, number: int, tensor: Any, layout: ArrayLayout) -> Any:
        """The value of argument ``number`` of the program."""
        k = self.graph.kept[number]
        name, state = self.graph.names[k], self.graph.state[k]
        if state or k in self._needed:
            if not self._called or name in self._same.found:
                self._same.add(name, as_numpy(tensor, name), SAME_MODULES if state else SAME_VALUES)
            put = partial(self._compiled()[0].driver.put, number, share=True)
            return self.values.lay_out(tensor, layout, name, put, again=not state)
        found = self.values.find(tensor, layout)
        if found is None and name.startswith(SAVED):
            raise InputError(
                "a tensor that the forward pass saved for the backward pass was replaced",
                where=name,
                fix="remove hooks that change tensors saved by autograd, such as save_on_cpu",
            )
        return as_numpy(tensor, name) if found is None else found

    def _tensor(self, array: Any, result: GraphResult) -> Any:
        """A result; what only the backward reads becomes a tensor without values, which stands for the array."""
        if not result.saved:
            return as_tensor(self.torch, array)
        tensor = self.torch.zeros((), dtype=result.dtype).expand(array.shape)
        self.values.keep(tensor, array)
        return tensor
