"""Why JAX refuses a call: what it says of pytrees, in terms of the function's arguments and the caller's shardings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from shardc.hlo.errors import AnnotationError
from shardc.hlo.units import count_text, kind_text
from shardc.launcher.arrays.placement import is_sharding
from shardc.launcher.arrays.trees import children, structure_text
from shardc.stages.jit_options import JitOptions

__all__ = ["explain_call"]


def explain_call(
    error: Exception,
    function: Callable[..., Any],
    options: JitOptions,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Exception | None:
    """The error to raise in place of JAX's ``error``, if that is about the call's arguments or shardings.

    An error of JAX that says enough is kept, with a note where one helps.
    """
    text = str(error)
    of_trees = "pytree structure error" in text
    if not isinstance(error, TypeError | ValueError) or not (of_trees or _is_of_call(error, text)):
        return None
    try:
        signature = inspect.signature(function)
        signature.bind(*args, **kwargs)
    except TypeError as e:
        said = f"{e}: the function is {getattr(function, '__name__', 'f')}{signature}"
        if of_trees:
            return TypeError(said)
        error.add_note(said)
        return None
    try:
        if "out_shardings" not in text:
            _check_arguments(options, args, kwargs)
        elif of_trees:
            import jax

            _check(options.out_shardings, jax.eval_shape(function, *args, **kwargs), "out_shardings", "the result")
        _check_leaves(options.in_shardings, "in_shardings")
        _check_leaves(options.out_shardings, "out_shardings")
    except AnnotationError as e:
        return e
    except Exception:  # the function does not trace like this: what JAX said first is what counts
        return None
    if "PartitionSpec instances" in text:
        error.add_note("JAX's own functions take JAX's class only: from jax.sharding import PartitionSpec as P")
    return None


def _is_of_call(error: Exception, text: str) -> bool:
    return isinstance(error, TypeError) and ("PartitionSpec instances" in text or "argument" in text)


def _check_arguments(options: JitOptions, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raise `AnnotationError` where in_shardings is no prefix of the positional arguments."""
    given, named = options.in_shardings, ", ".join(options.dynamic_names(kwargs))
    dynamic = options.dynamic(args)
    if given is None or is_sharding(given):
        return
    if isinstance(given, list):  # as JAX does
        given = tuple(given)
    if type(given) is tuple and len(given) != len(dynamic):
        entries = count_text(len(given), "entry", "entries")
        if named:
            counted = f"the call passes {count_text(len(dynamic), 'argument')} by position"
            fix = f"pass all arguments by position: in_shardings does not count those by name ({named})"
            raise AnnotationError(f"in_shardings has {entries}, but {counted}", fix=fix)
        counted = count_text(len(dynamic), "argument")
        fix = "give one sharding for all arguments, or one per argument (None leaves it to propagation)"
        raise AnnotationError(f"in_shardings has {entries}, but the call has {counted}", fix=fix)
    _check(given, dynamic, "in_shardings", "what the function takes")


def _check(given: Any, tree: Any, where: str, what: str) -> None:
    """Raise `AnnotationError` where ``given`` is no prefix of ``tree``, with shardings at its leaves."""
    if given is None or is_sharding(given):
        return
    _check_leaf(given, where)
    mine, theirs = children(given), children(tree)
    assert mine is not None
    if theirs is None:
        fix = "give one sharding for it"
        raise AnnotationError(f"{structure_text(mine, given)} was given for one array", where=where, fix=fix)
    if mine.kind != theirs.kind or set(mine.keys) != set(theirs.keys):
        raise AnnotationError(
            f"the shardings are {structure_text(mine, given)}, but {what} is {structure_text(theirs, tree)}",
            where=where,
            fix="give one sharding for the whole tree, or one per entry (None leaves it to propagation)",
        )
    below = dict(zip(theirs.keys, theirs.values, strict=True))
    for key, value in zip(mine.keys, mine.values, strict=True):
        _check(value, below[key], f"{where}[{key!r}]", "the value")


def _check_leaves(given: Any, where: str) -> None:
    """Raise `AnnotationError` for a leaf that is no sharding."""
    if given is None or is_sharding(given):
        return
    _check_leaf(given, where)
    node = children(given)
    assert node is not None
    for key, value in zip(node.keys, node.values, strict=True):
        _check_leaves(value, f"{where}[{key!r}]")


def _check_leaf(given: Any, where: str) -> None:
    if isinstance(given, str):
        raise AnnotationError(f"{given!r} is a string, not a sharding", where=where, fix=f"write P({given!r})")
    if children(given) is None:
        fix = 'write P(...), such as P("data", None)'
        raise AnnotationError(f"{kind_text(given)} is not a sharding", where=where, fix=fix)
