"""NumPy functions in: traced, and their shardings put onto the module over a mesh."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from shardc.hlo.errors import AnnotationError, InputError
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, Sharding
from shardc.hlo.numpy.trace import RequestedSharding, TracedFunction, constrain, trace_function
from shardc.hlo.numpy.tracer import Tracer
from shardc.hlo.numpy.tree import Tree
from shardc.hlo.passes import pause_collector
from shardc.hlo.units import count_text, kind_text
from shardc.launcher.arrays.meshes import as_mesh, several_meshes
from shardc.launcher.arrays.placement import own_mesh, with_own_mesh
from shardc.sharding.axes.sub_axes import check_axes
from shardc.sharding.notations.annotate import with_shardings
from shardc.sharding.notations.partition_spec import PartitionSpec, as_spec, spec_to_sharding

__all__ = ["program_from_numpy", "shard"]


def shard(x: Any, spec: Any) -> Any:
    """Constrain the sharding of ``x`` while `trace` or `jit` traces a function. Plain arrays are returned unchanged.

    ``x`` may be nested (dicts, lists, tuples); ``spec`` is one `P` for all its arrays. Raises `AnnotationError` for
    other specs, `InputError` for JAX's arrays, for which JAX has a function.

    >>> def layer(x, w):
    ...     return np.maximum(shardc.shard(x @ w, P("data", None)), 0)
    >>> traced = shardc.trace(layer, np.ones((8, 4)), np.ones((4, 4)), mesh=mesh)
    >>> traced.propagate().partition().report()["results"][0]["local_shape"]
    [4, 4]
    """
    wanted = spec if isinstance(spec, Sharding) else as_spec(spec)
    if isinstance(x, dict):
        return {k: shard(v, wanted) for k, v in x.items()}
    if type(x) in (list, tuple):
        return type(x)(shard(v, wanted) for v in x)
    if type(x).__module__.split(".")[0] in ("jax", "jaxlib"):
        raise InputError(
            "shardc.shard takes values of NumPy functions, but this is a JAX value",
            fix="use jax.lax.with_sharding_constraint(x, spec) in JAX functions",
        )
    return constrain(x, wanted) if isinstance(x, Tracer) else x


#: Keywords of `shardc.trace` that are not the function's.
_OPTIONS = ("mesh", "in_shardings", "out_shardings", "donate_argnums")


def program_from_numpy(
    function: Callable[..., Any],
    specs: Sequence[Any],
    named_specs: Mapping[str, Any],
    mesh: Mesh | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    donate_argnums: int | Iterable[int] = (),
) -> TracedFunction:
    """See `shardc.trace`. ``donate_argnums`` are positions of arguments whose memory results may take."""
    if not callable(function):
        raise InputError(f"{kind_text(function)} cannot be traced", fix="pass a function of NumPy arrays")
    _check_call(function, specs, named_specs)
    with pause_collector():
        traced = trace_function(function, specs, named_specs, _parameter_names(function))
    arguments, results = traced.in_tree, traced.out_tree
    module = traced.module.with_(donors=_donors(donate_argnums, arguments))
    requested, mesh = _over_one_mesh([w for w in traced.requested if _is_usable(w, mesh)], mesh)
    if in_shardings is not None:
        positional = replace(arguments.children[0], keys=_labels(function, len(arguments.children[0].keys)))
        given = _prefix(_positional(in_shardings), positional, "in_shardings")
        requested += [
            RequestedSharding(p, s, f"in_shardings, {n}")
            for p, s, n in zip(module.parameters, given, module.arg_names, strict=False)
            if s is not None
        ]
    outputs = list(_prefix(out_shardings, results, "out_shardings")) if out_shardings is not None else []
    named = [(s, f"out_shardings, {n}") for s, n in zip(outputs, module.result_names, strict=False)]
    over = mesh or _mesh_of([w.spec for w in requested] + outputs)
    if over is None:
        return replace(traced, module=module)
    found = {w.instruction: _sharding(w.spec, over, w.instruction.shape.rank, w.where) for w in requested}
    ends = tuple(
        None if s is None else _sharding(s, over, shape.rank, where)
        for (s, where), shape in zip(named, module.results, strict=bool(named))
    )
    module = module.with_(mesh=over, num_partitions=over.size)
    return replace(traced, module=with_shardings(module, found, ends))


def _over_one_mesh(
    requested: Sequence[RequestedSharding], mesh: Mesh | None
) -> tuple[list[RequestedSharding], Mesh | None]:
    """The requests without the meshes that they bring along, and ``mesh``, which is theirs where it is None."""
    found, over = [], mesh
    for w in requested:
        spec, own = with_own_mesh(w.spec, mesh, w.where)
        own = None if own is None else as_mesh(own)
        if own is not None and over is not None and own != over:
            raise several_meshes(over, own, w.where)
        over = over or own
        found.append(replace(w, spec=spec))
    return found, over


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of ``function``; none where Python does not know them."""
    try:
        return [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        return []


def _check_call(function: Callable[..., Any], specs: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Raise `InputError` for an argument that is missing, one too many, or named as neither a parameter of
    ``function`` nor an option of `shardc.trace`."""
    parameters = _parameters(function)
    if not parameters:
        return
    if not any(p.kind == p.VAR_KEYWORD for p in parameters):
        _check_names(parameters, named)
    try:
        signature = inspect.signature(function, follow_wrapped=False)  # a decorator may pass more
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*specs, **named)
    except TypeError as e:
        name = getattr(function, "__name__", "f")
        fix = f"give an example or a shape for each of its arguments: {name}{signature}"
        raise InputError(f"the function cannot be called: {e}", where="shardc.trace", fix=fix) from None


def _check_names(parameters: Sequence[inspect.Parameter], named: Mapping[str, Any]) -> None:
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    unknown = next((n for n in named if n not in names), None)
    if unknown is not None:
        near = get_close_matches(unknown, [*names, *_OPTIONS], n=1)
        fix = f"did you mean {near[0]}?" if near else f"its parameters are {', '.join(names) or 'positional'}"
        raise InputError(f"the function has no parameter {unknown!r}", where="shardc.trace", fix=fix)


def _parameter_names(function: Callable[..., Any]) -> list[str]:
    """Names of positional parameters, ``args[0]`` and on for the rest of them."""
    parameters = _parameters(function)
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in parameters if p.kind == p.VAR_POSITIONAL), None)
    return names + ([f"{rest}[{k}]" for k in range(64)] if rest else [])


def _labels(function: Callable[..., Any], count: int) -> tuple[Any, ...]:
    """What the positional arguments are called; their numbers where that is not known."""
    names = _parameter_names(function)[:count]
    return (*names, *range(len(names), count))


def _positional(in_shardings: Any) -> Any:
    """One spec for all arguments, or one per argument."""
    return list(in_shardings) if isinstance(in_shardings, tuple) else in_shardings


def _donors(donate_argnums: int | Iterable[int], arguments: Tree) -> tuple[int, ...]:
    """Flat parameters of the donated arguments."""
    numbers = [donate_argnums] if isinstance(donate_argnums, int) else list(donate_argnums)
    children = arguments.children[0].children
    starts = [sum(c.count for c in children[:k]) for k in range(len(children))]
    made: list[int] = []
    for n in numbers:
        if not -len(children) <= n < len(children):
            raise InputError(
                f"donate_argnums names argument {n}", fix=f"the function has {count_text(len(children), 'argument')}"
            )
        made += range(starts[n], starts[n] + children[n].count)
    return tuple(sorted(made))


def _is_spec(value: Any) -> bool:
    return (
        value is None
        or isinstance(value, (PartitionSpec, Sharding))
        or hasattr(type(value), "UNCONSTRAINED")
        or (hasattr(value, "spec"))
    )


def _is_usable(request: RequestedSharding, mesh: Mesh | None) -> bool:
    """What an array says of its own layout counts where it names axes, of the mesh that is asked for."""
    if not request.where.startswith("argument "):
        return True
    return _is_spec(request.spec) and (mesh is None or _other_mesh(request.spec, mesh) is None)


def _other_mesh(spec: Any, mesh: Mesh) -> Mesh | None:
    """The mesh of a `Sharding` or of JAX's NamedSharding, if it is another one than ``mesh``."""
    own = own_mesh(spec)
    if own is None or own == mesh or (own.axes == mesh.axes and not isinstance(spec, Sharding)):
        return None
    return own


def _prefix(given: Any, tree: Tree, what: str) -> Iterator[Any]:
    """One spec per leaf of ``tree`` from a tree that ends earlier."""
    if _is_spec(given):
        yield from [given] * tree.count
        return
    if isinstance(given, str):
        raise AnnotationError(f"{what}: {given!r} is a string", fix=f"write P({given!r})")
    if not isinstance(given, dict | list | tuple):
        raise _does_not_fit(given, tree, what)
    children, keys = (list(given.values()), set(given)) if isinstance(given, dict) else (list(given), None)
    if tree.kind is None or len(children) != len(tree.children) or (keys is not None and keys != set(tree.keys)):
        raise _does_not_fit(given, tree, what)
    for k, (key, child) in enumerate(zip(tree.keys, tree.children, strict=True)):
        yield from _prefix(given[key] if keys is not None else children[k], child, what)


def _does_not_fit(given: Any, tree: Tree, what: str) -> AnnotationError:
    """The error for a tree of specs that is unlike the tree of arrays: by counts, or by keys."""
    if tree.kind is None:
        return AnnotationError(f"{what} {given!r} does not fit one array", fix='give one spec, such as P("data", None)')
    names = ", ".join(map(str, tree.keys)) or "none"
    if isinstance(given, dict):
        said = f"{what} has specs for {', '.join(map(str, given)) or 'nothing'}, which does not fit {names}"
    elif isinstance(given, list | tuple):
        here, there = count_text(len(given), "spec"), count_text(len(tree.children), "value")
        said = f"{what} has {here}, which does not fit {there} ({names})"
    else:
        said = f"{what} {given!r} does not fit"
    return AnnotationError(said, fix="give one P for all, or one for each of them")


def _mesh_of(specs: Sequence[Any]) -> Mesh | None:
    """The mesh that shardings bring along, or all axes that specs name with size 1, to be given sizes later."""
    names: dict[str, int] = {}
    for spec in specs:
        if spec is None:
            continue
        own = own_mesh(spec)
        if own is not None:
            return own
        plain = as_spec(spec)
        entries = [a for e in plain for a in (e if isinstance(e, tuple) else (e,))]
        names.update((a.name if isinstance(a, AxisRef) else a, 1) for a in entries if isinstance(a, (str, AxisRef)))
        names.update((a, 1) for a in plain.unreduced)
    return Mesh(names) if names else None


def _sharding(spec: Any, mesh: Mesh, rank: int, where: str) -> Sharding:
    other = _other_mesh(spec, mesh)
    if other is not None:
        what = f"the sharding {spec} is over the mesh {other}, but the program is over {mesh}"
        raise AnnotationError(what, where=where, fix="use one mesh for all shardings")
    if isinstance(spec, Sharding):
        if spec.rank != rank:
            raise AnnotationError(f"the sharding {spec} does not fit an array of rank {rank}", where=where)
        check_axes(spec, where)
        return spec
    return spec_to_sharding(as_spec(spec, where), mesh, rank, where)
