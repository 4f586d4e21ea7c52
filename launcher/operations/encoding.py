"""Arguments of a call as a hashable structure without its arrays, and the call made of that and others in their place.

``("leaf", n)`` stands for the n-th array or number that the program is given, ``("view", n, call)`` for a view of the
n-th, which that call makes of it, ``("selection", n, m)`` for the elements of the n-th under the mask that is the m-th.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardc.hlo.numpy.tree import flatten

__all__ = ["Encoded", "decode", "decode_arguments", "encode_static"]

Encoded = tuple[Any, ...]


def encode_static(value: Any) -> Encoded:
    """A value that is part of the call: 1, 1.0 and True are three, as are 0.0 and -0.0."""
    if isinstance(value, float | complex):
        return "static", type(value), repr(value), value
    return "static", type(value), value


def decode(function: Any, encoded: Encoded, leaves: Sequence[Any], views: list[Any]) -> Any:
    """Make the call on ``leaves``; the views of them that are among its arguments are added to ``views``."""
    args, kwargs = decode_arguments(encoded, leaves, views)
    return function(*args, **kwargs)


def decode_arguments(encoded: Encoded, leaves: Sequence[Any], views: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    args, kwargs = _decoded(encoded, leaves, views)
    return args, kwargs


def _decoded(encoded: Encoded, leaves: Sequence[Any], views: list[Any]) -> Any:
    kind, *rest = encoded
    if kind == "leaf":
        return leaves[rest[0]]
    if kind == "static":
        return rest[-1]
    if kind == "selection":
        whole, mask = rest
        return leaves[whole][leaves[mask]]
    if kind == "view":
        number, (function, inner, place) = rest
        view = flatten(decode(function, inner, [leaves[number]], []))[0][place]
        views.append(view)
        return view
    children = [_decoded(e, leaves, views) for e in rest[-1]]
    if kind == "dict":
        return dict(zip(rest[0], children, strict=True))
    if kind == "slice":
        return slice(*children)
    if kind == "list":
        return children
    return tuple(children) if rest[0] is tuple else rest[0](*children)
