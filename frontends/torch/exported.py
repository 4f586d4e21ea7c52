"""A module as an exported program in core ATen operators, and what its inputs and results are."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardc.frontends.foreign import describe_error, raised_at
from shardc.frontends.torch.element_types import numpy_type
from shardc.frontends.torch.operators import decompositions
from shardc.frontends.torch.places import place_of
from shardc.frontends.torch.plain_operators import plain_operators
from shardc.frontends.torch.signature import Input, ModuleTensor, TorchSignature, Update
from shardc.frontends.torch.structure import check_call
from shardc.hlo.errors import InputError, ShardcError, UnsupportedError
from shardc.hlo.units import kind_text

__all__ = [
    "TensorGraph", "check_devices", "core_aten", "decomposed", "distinct", "export", "graph_of", "is_token",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorGraph:
    """A graph of operators that change nothing in place.

    ``placeholders`` has the flat argument of each placeholder, None for those of plain values. ``results`` are the
    numbers of the graph's outputs that are results of the program, in its order.
    """

    graph_module: Any
    signature: TorchSignature
    placeholders: tuple[int | None, ...]
    results: tuple[int, ...]

    def avals(self, jax: Any) -> list[Any]:
        """Shapes and types of the flat arguments, as JAX takes them."""
        s = self.signature
        states = [jax.ShapeDtypeStruct(tuple(x.tensor.shape), numpy_type(s.torch, x.tensor.dtype)) for x in s.states]
        return [*states, *(jax.ShapeDtypeStruct(i.dims, i.dtype) for i in s.inputs if i.dtype is not None)]


def export(torch: Any, module: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> Any:
    """``torch.export.export``, whose errors are told as ours."""
    try:
        with warnings.catch_warnings():
            # Recurrent layers keep a list of their own parameters, which PyTorch takes for tensors that are new.
            own = r"The tensor attributes? (self\.[\w.]*_flat_weights\[\d+\](, )?)+ (was|were) assigned during export"
            warnings.filterwarnings("ignore", own, UserWarning)
            return torch.export.export(module, tuple(args), dict(kwargs or {}), strict=False)
    except ShardcError:
        raise
    except Exception as e:
        line = raised_at(e, [str(torch.__path__[0])])
        values = type(e).__name__ == "GuardOnDataDependentSymNode"
        raise UnsupportedError(
            f"torch.export cannot follow the module: {describe_error(e)}",
            where=", ".join(part for part in (line, type(module).__name__) if part),
            fix="the control flow depends on values at this line: use torch.where, or keep this part outside of "
            "the program"
            if values
            else "make torch.export.export(module, args, kwargs) succeed first; its message has details",
        ) from e


def distinct(torch: Any, module: Any, tree: Any) -> Any:
    """``tree`` with a copy of each tensor that it has twice, or that is the module's: PyTorch follows tensors by
    identity while it traces, and would read one argument for both."""
    seen = {id(t) for t in (*module.parameters(), *module.buffers())}

    def own(tensor: Any) -> Any:
        if id(tensor) in seen:
            tensor = tensor.detach().clone().requires_grad_(tensor.requires_grad)
        seen.add(id(tensor))
        return tensor

    return torch.utils._pytree.tree_map_only(torch.Tensor, own, tree)


def check_devices(torch: Any, module: Any, tree: Any) -> None:
    """InputError where tensors of the module and those of ``tree``, its arguments, lie on several kinds of devices."""
    leaves = torch.utils._pytree.tree_leaves(tree)
    given = [("an argument", t) for t in leaves if isinstance(t, torch.Tensor)]
    own = [*module.named_parameters(), *module.named_buffers()]
    found = {str(t.device): what for what, t in (*own, *given) if t.dim()}
    if len(found) > 1:
        told = ", ".join(f"{what} on {device}" for device, what in sorted(found.items()))
        raise InputError(
            f"the module has tensors on several devices: {told}",
            where=type(module).__name__,
            fix="move the module and its arguments to one device: the CPU for a program that will run",
        )


def is_token(descriptor: Any) -> bool:
    """Whether an input or output of a graph of AOTAutograd's is a token, which orders checks that only raise errors."""
    return "Token" in type(descriptor).__name__


def core_aten(torch: Any, source: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
    """The exported program of a module, or an exported program as it is; before decompositions, shapes known."""
    if isinstance(source, torch.export.ExportedProgram):
        if args or kwargs:
            raise InputError(
                "an ExportedProgram takes no further arguments", fix="omit the arguments: it already has them"
            )
        exported = source
    elif isinstance(source, torch.nn.Module):
        if isinstance(args, torch.Tensor):
            raise InputError(
                "the arguments are one tensor",
                where=type(source).__name__,
                fix="pass a tuple: from_torch(module, (x,))",
            )
        check_devices(torch, source, (args, kwargs))
        fix = "pass an example for each argument: from_torch(module, (x,), {'mask': mask})"
        check_call(source.forward, args, kwargs or {}, type(source).__name__, fix)
        given, named = distinct(torch, source, (tuple(args), dict(kwargs or {})))
        exported = export(torch, source, given, named)
    else:
        raise InputError(
            f"cannot make a program from {kind_text(source)}",
            fix="pass a torch.nn.Module with its arguments, or a torch.export.ExportedProgram, "
            "for example from torch.export.load(path)",
        )
    if exported.range_constraints:
        raise _dynamic(torch, exported)
    return exported


def _dynamic(torch: Any, exported: Any) -> UnsupportedError:
    """The error for sizes that are open: of which operator's result, or of which arguments."""
    node = next((n for n in exported.graph.nodes if n.meta.get("unbacked_bindings")), None)
    if node is None:
        return UnsupportedError(
            f"dynamic dimensions are not supported: {', '.join(map(str, exported.range_constraints))}",
            fix="export the module without dynamic_shapes, once for each shape",
        )
    return UnsupportedError(
        f"{node.target}: sizes or plain numbers depend on values",
        where=str(place_of(node, str(torch.__path__[0]))) or None,
        fix="use operators with known shapes (torch.where), or keep this part outside of the program",
    )


def decomposed(torch: Any, exported: Any) -> Any:
    """A program of operators that change nothing in place; UnsupportedError where PyTorch has none."""
    try:
        with plain_operators(torch), warnings.catch_warnings():
            # PyTorch copies a tree of its own there, and warns of its class.
            warnings.filterwarnings("ignore", ".*LeafSpec", FutureWarning)
            return exported.run_decompositions(decompositions(torch))
    except Exception as e:
        changes = (n for n in exported.graph.nodes if torch.Tag.inplace_view in getattr(n.target, "tags", ()))
        node = next(changes, None)
        raise UnsupportedError(
            f"{node.target if node else 'torch.export'} cannot be rewritten without in-place changes: "
            f"{describe_error(e)}",
            where=(str(place_of(node, str(torch.__path__[0]))) if node else "") or None,
            fix="make exported.run_decompositions() succeed first; its message has details",
        ) from e


def graph_of(torch: Any, exported: Any) -> TensorGraph:
    """The graph of an exported program, after decompositions."""
    kinds = torch.export.graph_signature
    held = (kinds.InputKind.PARAMETER, kinds.InputKind.BUFFER, kinds.InputKind.CONSTANT_TENSOR)
    specs = exported.graph_signature.input_specs
    states, where = _states(exported, [s for s in specs if s.kind in held])
    leaves = _leaf_names(torch, exported)
    nodes = {n.name: n for n in exported.graph.nodes if n.op == "placeholder"}
    inputs: list[Input] = []
    placeholders: list[int | None] = []
    flat: dict[str, int] = {}
    for spec in specs:
        if spec.kind in held:
            number: int | None = where[spec.target]
        elif spec.kind == kinds.InputKind.USER_INPUT:
            inputs.append(_input(torch, kinds, next(leaves), spec.arg, nodes))
            before = sum(i.dtype is not None for i in inputs[:-1])
            number = None if inputs[-1].dtype is None else len(states) + before
        elif spec.kind == kinds.InputKind.TOKEN:
            placeholders.append(None)  # the order of checks that only raise errors
            continue
        else:
            raise UnsupportedError(f"inputs of kind {spec.kind.name.lower()} are not supported: {spec.target}")
        placeholders.append(number)
        if number is not None:
            flat[spec.arg.name] = number
    outputs, updates, results = _results(kinds, exported.graph_signature.output_specs, {**where, **flat})
    call = exported.call_spec
    signature = TorchSignature(
        torch, states, tuple(inputs), call.in_spec, outputs, call.out_spec, updates, tuple(range(len(flat)))
    )
    return TensorGraph(exported.graph_module, signature, tuple(placeholders), results)


def _states(exported: Any, specs: Sequence[Any]) -> tuple[tuple[ModuleTensor, ...], dict[str, int]]:
    """The module's tensors, each once, under the first of its names; and the number of each by all its names."""
    states: list[ModuleTensor] = []
    numbers: dict[str, int] = {}
    seen: dict[int, int] = {}
    order = {name: k for k, name in enumerate(exported.state_dict)}
    for spec in sorted(specs, key=lambda s: order.get(s.target, len(order))):
        known = exported.state_dict if spec.target in exported.state_dict else exported.constants
        tensor = known[spec.target]
        if id(tensor) not in seen:
            seen[id(tensor)] = len(states)
            states.append(ModuleTensor(str(spec.target), tensor))
        numbers[spec.target] = seen[id(tensor)]
    return tuple(states), numbers


def _leaf_names(torch: Any, exported: Any) -> Iterator[str]:
    """What the leaves of the arguments are called: ``x``, ``batch['ids']``."""
    pytree, spec = torch.utils._pytree, exported.call_spec.in_spec
    signature = exported.module_call_graph[0].signature
    names = list(getattr(signature, "forward_arg_names", None) or ())
    tree = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    for path, _ in pytree.tree_flatten_with_path(tree)[0]:
        by_name = path[0].idx == 1
        first = path[1].key if by_name else names[path[1].idx] if path[1].idx < len(names) else f"args[{path[1].idx}]"
        yield f"{first}{pytree.keystr(path[2:])}"


def _input(torch: Any, kinds: Any, name: str, arg: Any, nodes: Mapping[str, Any]) -> Input:
    if not isinstance(arg, kinds.TensorArgument):
        return Input(name, value=getattr(arg, "value", None))
    value = nodes[arg.name].meta["val"]
    return Input(name, tuple(int(n) for n in value.shape), np.dtype(numpy_type(torch, value.dtype)))


def _results(
    kinds: Any, specs: Sequence[Any], arguments: Mapping[str, int]
) -> tuple[tuple[tuple[int | None, Any], ...], tuple[Update, ...], tuple[int, ...]]:
    """The module's own results, the changes of its state, and the numbers of the outputs that both take."""
    outputs: list[tuple[int | None, Any]] = []
    user: list[int] = []
    changed: list[tuple[int, int]] = []
    for number, spec in enumerate(specs):
        if spec.kind == kinds.OutputKind.USER_OUTPUT:
            tensor = isinstance(spec.arg, kinds.TensorArgument)
            outputs.append((len(user) if tensor else None, getattr(spec.arg, "value", None)))
            user += [number] if tensor else []
        elif spec.kind == kinds.OutputKind.TOKEN:
            continue
        elif spec.kind in (kinds.OutputKind.BUFFER_MUTATION, kinds.OutputKind.USER_INPUT_MUTATION):
            changed.append((number, arguments[spec.target]))
        else:
            raise UnsupportedError(f"results of kind {spec.kind.name.lower()} are not supported: {spec.target}")
    updates = tuple(Update(len(user) + k, argument) for k, (_, argument) in enumerate(changed))
    return tuple(outputs), updates, (*user, *(number for number, _ in changed))
