"""Whether a call's arguments have the structure that a program was made for, and what differs in words."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shardc.hlo.errors import InputError

__all__ = ["check_call", "leaves_of_call"]

#: So many names are told.
_MOST = 8


def check_call(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], who: str, fix: str
) -> None:
    """InputError unless ``function``, which is called ``who``, can be called with these arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # one that is not Python's
    try:
        signature.bind(*args, **kwargs)
    except TypeError as e:
        raise InputError(f"{who} cannot be called with these arguments: {e}", fix=fix) from None


def leaves_of_call(torch: Any, given: Any, in_spec: Any, names: Sequence[str], depth: int, where: str) -> list[Any]:
    """The leaves of ``given``, whose structure must be ``in_spec``; ``names`` are those of its leaves.

    An argument is what lies ``depth`` levels below the root. InputError for another structure says which leaves are
    missing and which are too many.
    """
    pytree = torch.utils._pytree
    leaves: list[Any]
    leaves, spec = pytree.tree_flatten(given)
    if spec == in_spec:
        return leaves
    wanted = [path for path, _ in pytree.tree_flatten_with_path(pytree.tree_unflatten(list(names), in_spec))[0]]
    found = [path for path, _ in pytree.tree_flatten_with_path(given)[0]]
    called = dict(zip(wanted, names, strict=True))
    arguments = {path[:depth]: called[path].removesuffix(pytree.keystr(path[depth:])) for path in wanted}

    def title(path: Any) -> str:
        key = path[depth - 1]
        other = repr(key.key) if hasattr(key, "key") else f"argument {key.idx}"
        return f"{arguments.get(path[:depth], other)}{pytree.keystr(path[depth:])}"

    missing = [called[path] for path in wanted if path not in set(found)]
    more = [title(path) for path in found if path not in called]
    told = [f"{_some(missing)} missing"] if missing else []
    told += [f"{_some(more)} not known"] if more else []
    raise InputError(
        "the arguments have another structure than the program was made with: "
        + ("; ".join(told) or "tuples, lists or dicts are of another type or order"),
        where=where,
        fix=f"pass {', '.join(dict.fromkeys(arguments.values())) or 'no arguments'} as they were at first, "
        "or make another program for these arguments",
    )


def _some(names: Sequence[str]) -> str:
    told = ", ".join(names[:_MOST]) + (f" and {len(names) - _MOST} more" if len(names) > _MOST else "")
    return f"{told} {'is' if len(names) == 1 else 'are'}"
