"""Forward and backward as one graph: what PyTorch's own automatic differentiation does for a loss.

PyTorch differentiates, so frozen parameters, ``detach``, ``no_grad`` and gradients at ties are as they are in eager
mode. Operators of the backward have the places of those that they belong to.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardc.frontends.torch.exported import check_devices, distinct, export, is_token
from shardc.frontends.torch.operators import decompositions
from shardc.frontends.torch.plain_operators import plain_operators
from shardc.frontends.torch.structure import check_call
from shardc.frontends.torch.train.hooks import refusing_hooks
from shardc.frontends.torch.train.without_memory import traceable
from shardc.hlo.errors import InputError, UnsupportedError
from shardc.hlo.units import kind_text

__all__ = ["JointGraph", "Numbered", "joint_graph"]

#: What the wrapper calls the module, and so the beginning of its tensors' names.
_PREFIX = "module."
_OWN_FRAME = re.compile(rf'File "{re.escape(__file__)}", line \d+, in \w+')


@dataclass(frozen=True, slots=True)
class JointGraph:
    """A graph of forward and backward.

    ``placeholders`` has a tensor's name in ``state_dict``, the number of a leaf of the step's arguments, or None for
    the gradient of the loss, which is one, and for tokens. Numbers of the graph's outputs are: ``results``, the loss
    and what comes with it; ``changed``, new values of tensors by name; ``gradients``, by the name of the tensor, some
    of them sums of several. ``tensors`` are the module's, by name. ``leaves`` are those of the arguments, ``rest``
    those of the loss's result after the loss, in the structure ``rest_spec``.
    """

    graph_module: Any
    placeholders: tuple[str | int | None, ...]
    results: tuple[int, ...]
    changed: Mapping[str, int]
    gradients: Mapping[str, tuple[int, ...]]
    tensors: Mapping[str, Any]
    leaves: tuple[Any, ...]
    in_spec: Any
    rest: tuple[Any, ...]
    rest_spec: Any


def joint_graph(torch: Any, module: Any, loss: Callable[..., Any], args: Sequence[Any]) -> JointGraph:
    """The graph of ``loss(module, *args)``, a scalar or a tuple that begins with it, and of its gradients.

    Raises InputError where the loss is no scalar or depends on no parameter, UnsupportedError for modules that
    PyTorch cannot export or differentiate.
    """
    pytree = torch.utils._pytree
    fix = "pass an example for each parameter of the loss after the module"
    check_call(loss, (module, *args), {}, "the loss", fix)
    check_devices(torch, module, args)
    seen: list[Any] = []
    wrapper = _wrapper(torch, module, loss, seen)
    named = _named(wrapper)
    with traceable(torch, wrapper, distinct(torch, module, tuple(args))) as given:
        exported = export(torch, wrapper, given, None)
        whole = _with_constants(torch, exported)
        graph_module = _differentiated(torch, whole, given, type(module).__name__)
        tensors, first = _tensors(named, _named(whole))
    _tell_places(graph_module, loss)
    rest, rest_spec = pytree.tree_flatten(seen[-1])
    leaves, in_spec = pytree.tree_flatten(tuple(args))
    inputs = [n.meta["desc"] for n in graph_module.graph.nodes if n.op == "placeholder"]
    outputs = _Outputs(graph_module, first)
    placeholders = tuple(_placeholder(d, first) for d in inputs)
    return JointGraph(
        graph_module, placeholders, outputs.results, outputs.changed, outputs.gradients, tensors, tuple(leaves),
        in_spec, tuple(rest), rest_spec,
    )  # fmt: skip


def _with_constants(torch: Any, exported: Any) -> Any:
    """The exported module; tensors that the loss takes from outside of it become buffers."""
    whole = exported.module()
    for part in whole.modules():
        for name in [k for k, value in vars(part).items() if isinstance(value, torch.Tensor)]:
            value = getattr(part, name)
            delattr(part, name)
            part.register_buffer(name, value, persistent=False)
    return whole


def _differentiated(torch: Any, module: Any, args: Sequence[Any], title: str) -> Any:
    from torch._functorch.aot_autograd import aot_export_joint_with_descriptors

    with plain_operators(torch), contextlib.ExitStack() as stack:
        try:
            joint = aot_export_joint_with_descriptors(stack, module, tuple(args), decompositions=decompositions(torch))
        except RuntimeError as e:
            message = next(iter(str(e).strip().splitlines()), "")
            raise UnsupportedError(f"PyTorch cannot differentiate the step: {message}", where=title) from e
        return joint.graph_module


def _tell_places(graph_module: Any, loss: Callable[..., Any]) -> None:
    """Put the line of the loss in place of the wrapper's lines, and paths in the module in place of those in the
    wrapper. PyTorch keeps no other lines than those of forward methods."""
    line = _line_of(loss)
    for node in graph_module.graph.nodes:
        if trace := node.meta.get("stack_trace"):
            node.meta["stack_trace"] = _OWN_FRAME.sub(lambda _: line, trace)
        if stack := node.meta.get("nn_module_stack"):
            own = {k: (f"{path}.".removeprefix(_PREFIX).removesuffix("."), kind) for k, (path, kind) in stack.items()}
            node.meta["nn_module_stack"] = own


def _line_of(loss: Callable[..., Any]) -> str:
    """Where a function is defined, as in a traceback; empty for one that is not Python's."""
    while isinstance(loss, functools.partial):
        loss = loss.func
    loss = inspect.unwrap(loss)
    code = getattr(loss, "__code__", None) or getattr(type(loss).__call__, "__code__", None)
    return f'File "{code.co_filename}", line {code.co_firstlineno}, in {code.co_name}' if code else ""


def _wrapper(torch: Any, module: Any, loss: Callable[..., Any], seen: list[Any]) -> Any:
    """A module whose results are the loss and the tensors that come with it; ``seen`` gets what comes with it, in its
    structure, with tensors' numbers in place of tensors."""
    pytree = torch.utils._pytree

    class Step(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *args: Any) -> tuple[Any, ...]:
            with refusing_hooks(torch):
                made = loss(self.module, *args)
            first, *rest = made if isinstance(made, tuple) else (made,)
            if not isinstance(first, torch.Tensor) or first.numel() != 1 or not first.requires_grad:
                shown = f"of shape {list(first.shape)}" if isinstance(first, torch.Tensor) else kind_text(first)
                raise InputError(
                    f"the loss is {shown}" + (", which needs no gradient" if not getattr(first, "shape", (1,)) else ""),
                    fix="return one scalar that depends on parameters, or a tuple that begins with it",
                )
            leaves, spec = pytree.tree_flatten(tuple(rest))
            tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
            numbers = iter(range(len(tensors)))
            seen.append(
                pytree.tree_unflatten(
                    [Numbered(next(numbers)) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves], spec
                )
            )
            return (first.reshape(()), *(t.detach() for t in tensors))

    return Step()


@dataclass(frozen=True, slots=True)
class Numbered:
    """A tensor among the results, after the loss."""

    number: int


def _named(module: Any) -> list[tuple[str, Any]]:
    """All tensors of a module, those with several names under each."""
    return [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]


def _tensors(
    own: Sequence[tuple[str, Any]], exported: Sequence[tuple[str, Any]]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The module's ``own`` tensors by the first of their names, then constants that only the ``exported`` module has;
    and the first name for all names, those with the wrapper's prefix."""
    tensors: dict[str, Any] = {}
    first: dict[str, str] = {}
    by_identity: dict[int, str] = {}
    for name, tensor in (*own, *exported):
        if name not in first:
            short = name.removeprefix(_PREFIX)
            short = name if short in tensors and tensors[short] is not tensor else short
            first[name] = by_identity.setdefault(id(tensor), short)
            tensors.setdefault(first[name], tensor)
    return tensors, first


def _placeholder(descriptor: Any, first: Mapping[str, str]) -> str | int | None:
    kind = type(descriptor).__name__
    if kind in ("ParamAOTInput", "BufferAOTInput"):
        return first[descriptor.target]
    if kind == "PlainAOTInput":
        return int(descriptor.idx)
    if kind == "TangentAOTInput" or is_token(descriptor):
        return None
    raise UnsupportedError(f"inputs of kind {descriptor} are not supported")


class _Outputs:
    """What the outputs of a joint graph are, by their descriptors."""

    def __init__(self, graph_module: Any, first: Mapping[str, str]) -> None:
        node = next(n for n in graph_module.graph.nodes if n.op == "output")
        results: dict[int, int] = {}
        self.changed: dict[str, int] = {}
        self.gradients: dict[str, tuple[int, ...]] = {}
        for number, (value, descriptor) in enumerate(zip(node.args[0], node.meta["desc"], strict=True)):
            kind = type(descriptor).__name__
            if value is None or descriptor is None or is_token(descriptor):
                continue
            if kind == "PlainAOTOutput":
                results[descriptor.idx] = number
            elif kind == "InputMutationAOTOutput":
                target = _placeholder(descriptor.mutated_input, first)
                if not isinstance(target, str):
                    raise UnsupportedError("the step changes its arguments", fix="clone them in the loss first")
                self.changed[target] = number
            elif kind == "GradAOTOutput":
                target = _placeholder(descriptor.grad_of, first)
                if isinstance(target, str):
                    self.gradients[target] = (*self.gradients.get(target, ()), number)
            else:
                raise UnsupportedError(f"results of kind {descriptor} are not supported")
        self.results = tuple(results[k] for k in sorted(results))
