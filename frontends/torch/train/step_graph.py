"""A training step as a program: forward, backward and update, with names for its arguments and results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardc.frontends.jax.frontend import require_jax
from shardc.frontends.torch.draw_keys import Draws
from shardc.frontends.torch.element_types import numpy_type
from shardc.frontends.torch.frontend import lower_named
from shardc.frontends.torch.packages import require_torch
from shardc.frontends.torch.signature import Input, Update
from shardc.frontends.torch.tracer import GraphTracer
from shardc.frontends.torch.train.clip_gradients import clip_gradients
from shardc.frontends.torch.train.hooks import refuse_hooks
from shardc.frontends.torch.train.joint import JointGraph, joint_graph
from shardc.frontends.torch.train.optimizers import ParameterGroup, groups_of
from shardc.hlo.errors import InputError
from shardc.hlo.ir.ir import Module
from shardc.hlo.units import kind_text

__all__ = ["SEED", "STEP", "OptimizerSlot", "StepGraph", "step_graph"]

#: The argument that counts the steps made.
STEP = "optimizer.step"
#: The argument that random numbers depend on, beside the step.
SEED = "random.seed"


@dataclass(frozen=True, slots=True)
class OptimizerSlot:
    """A tensor that the optimizer keeps: ``slot`` of the parameter ``parameter``."""

    parameter: str
    slot: str

    @property
    def name(self) -> str:
        return f"optimizer.{self.slot}.{self.parameter}"


@dataclass(frozen=True, slots=True)
class StepGraph:
    """A module of ours that makes one step.

    Its arguments are ``names[k] for k in kept``: the module's ``tensors``, the optimizer's ``slots``, the number of
    steps made, hyperparameters, the ``seed`` if there is one, then ``inputs``. Results are the loss, ``rest`` tensors
    that come with it, and new values, which are ``updates`` of arguments. ``states`` has the name of a tensor for each
    name in the module's ``state_dict``: none for buffers that are not persistent.
    """

    module: Module
    names: tuple[str, ...]
    kept: tuple[int, ...]
    content: str
    updates: tuple[Update, ...]
    joint: JointGraph
    tensors: Mapping[str, Any]
    states: Mapping[str, str]
    slots: tuple[OptimizerSlot, ...]
    groups: tuple[ParameterGroup, ...]
    hyper: tuple[tuple[int, str], ...]
    inputs: tuple[Input, ...]
    seed: int | None = None


def step_graph(
    module: Any,
    loss: Callable[..., Any],
    optimizer: Any,
    args: Sequence[Any],
    *,
    seed: int | None = None,
    clip_grad_norm: float | None = None,
) -> StepGraph:
    """The program of a step; see `shardc.torch.train_step`."""
    torch, jax = require_torch(), require_jax()
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"{kind_text(module)} is not a torch.nn.Module", fix="pass the module to train")
    groups = groups_of(optimizer)
    refuse_hooks(torch, module, optimizer)
    joint = joint_graph(torch, module, loss, args)
    tensors = {n: t for n, t in joint.tensors.items() if n in joint.placeholders}
    known = {id(t): name for name, t in tensors.items()}
    states = {n: known[id(t)] for n, t in module.state_dict(keep_vars=True).items() if id(t) in known}
    trained = _trained(joint, tensors, groups)
    slots = tuple(OptimizerSlot(name, slot) for name, group in trained.items() for slot in group.slots)
    hyper = tuple((g.number, h) for g in groups for h in g.hyper)
    inputs = _inputs(torch, joint, loss)
    several = len(groups) > 1
    titles = [f"optimizer.{f'{n}.' if several else ''}{h}" for n, h in hyper]
    seeds = () if seed is None else (SEED,)
    names = (
        *tensors,
        *(s.name for s in slots),
        STEP,
        *titles,
        *seeds,
        *(i.name for i in inputs if i.dtype is not None),
    )
    updated = [*trained, *(n for n in joint.changed if n in tensors), *(s.name for s in slots), STEP]
    first = len(joint.results)
    updates = tuple(Update(first + k, names.index(name)) for k, name in enumerate(updated))
    tracer = GraphTracer(torch, jax)
    run = _runner(jax, tracer, joint, names, trained, groups, hyper, titles, inputs, clip_grad_norm)
    run.__name__ = f"train_{type(module).__name__}"
    avals = [
        *(_like(jax, torch, t) for t in tensors.values()),
        *(_like(jax, torch, tensors[s.parameter]) for s in slots),
        jax.ShapeDtypeStruct((), "int64"),
        *(jax.ShapeDtypeStruct((), "float64") for _ in hyper),
        *(jax.ShapeDtypeStruct((), "uint32") for _ in seeds),
        *(jax.ShapeDtypeStruct(i.dims, i.dtype) for i in inputs if i.dtype is not None),
    ]
    lowered, kept, content = lower_named(run, avals, names, updates, tracer.places)
    results = ["loss", *(f"result[{k}]" for k in range(1, first)), *(f"new {name}" for name in updated)]
    lowered = lowered.with_(result_names=tuple(results))
    return StepGraph(
        lowered, names, kept, content, updates, joint, tensors, states, slots, groups, hyper, inputs, seed
    )  # fmt: skip


def _trained(
    joint: JointGraph, tensors: Mapping[str, Any], groups: Sequence[ParameterGroup]
) -> dict[str, ParameterGroup]:
    """The parameters that have a gradient and belong to a group of the optimizer."""
    owner = {id(p): g for g in groups for p in g.parameters}
    found = {n: owner[id(t)] for n, t in tensors.items() if n in joint.gradients and id(t) in owner}
    if not found:
        raise InputError(
            "the optimizer has none of the parameters that the loss depends on",
            fix="make it with the module.parameters() of this module",
        )
    return found


def _like(jax: Any, torch: Any, tensor: Any) -> Any:
    return jax.ShapeDtypeStruct(tuple(tensor.shape), numpy_type(torch, tensor.dtype))


def _inputs(torch: Any, joint: JointGraph, loss: Callable[..., Any]) -> tuple[Input, ...]:
    """The leaves of the step's arguments, named after the parameters of ``loss`` behind the module."""
    import inspect

    pytree = torch.utils._pytree
    try:
        parameters = list(inspect.signature(loss).parameters.values())[1:]
    except (TypeError, ValueError):
        parameters = []
    known = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    tree = pytree.tree_unflatten(list(joint.leaves), joint.in_spec)
    out = []
    for path, leaf in pytree.tree_flatten_with_path(tree)[0]:
        first = known[path[0].idx] if path[0].idx < len(known) else f"args[{path[0].idx}]"
        name = f"{first}{pytree.keystr(path[1:])}"
        if isinstance(leaf, torch.Tensor):
            out.append(Input(name, tuple(leaf.shape), np.dtype(numpy_type(torch, leaf.dtype))))
        else:
            out.append(Input(name, value=leaf))
    return tuple(out)


def _runner(
    jax: Any, tracer: GraphTracer, joint: JointGraph, names: Sequence[str], trained: Mapping[str, ParameterGroup],
    groups: Sequence[ParameterGroup], hyper: Sequence[tuple[int, str]], titles: Sequence[str], inputs: Sequence[Input],
    clip_grad_norm: float | None,
) -> Callable[..., Any]:  # fmt: skip
    """The step as a function of flat arguments."""

    def run(*flat: Any) -> tuple[Any, ...]:
        values = dict(zip(names, flat, strict=True))
        leaves = [values[i.name] if i.dtype is not None else i.value for i in inputs]
        one = jax.numpy.ones((), flat[0].dtype)
        given = [values[p] if isinstance(p, str) else one if p is None else leaves[p] for p in joint.placeholders]
        step = values[STEP] + 1
        tracer.draws = Draws.of_seed(jax, values[SEED], step) if SEED in values else None
        found = tracer.run(joint.graph_module, given)
        by_group: dict[int, dict[str, Any]] = {g.number: {} for g in groups}
        for (number, name), title in zip(hyper, titles, strict=True):
            by_group[number][name] = values[title]
        parameters, kept = [], []
        with jax.named_scope("optimizer"):
            gradients = {n: sum(found[k] for k in joint.gradients[n]).astype(values[n].dtype) for n in trained}
            if clip_grad_norm is not None:
                gradients = clip_gradients(gradients, clip_grad_norm)
            for name, group in trained.items():
                slots = {s: values[OptimizerSlot(name, s).name] for s in group.slots}
                made, slots = group.update(values[name], gradients[name], slots, by_group[group.number], step)
                parameters.append(made)
                kept += [slots[s] for s in group.slots]
        changed = [found[k] for name, k in joint.changed.items() if name in values]
        return (*(found[k] for k in joint.results), *parameters, *changed, *kept, step)

    return run
