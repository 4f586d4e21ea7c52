"""Pytrees: JAX's where JAX is loaded, nested dicts, lists, tuples, named tuples and dataclasses where it is not."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shardc.hlo.errors import AnnotationError
from shardc.hlo.units import kind_text

__all__ = ["TreeLevel", "children", "map_with_prefix", "structure_text"]


@dataclass(frozen=True, slots=True)
class TreeLevel:
    """One level of a pytree: its ``kind``, what its children are called, and how it is made again of others."""

    kind: str
    keys: tuple[Any, ...]
    values: tuple[Any, ...]
    rebuild: Callable[[list[Any]], Any]


def children(value: Any) -> TreeLevel | None:
    """What ``value`` is made of; None for a leaf. None is a leaf, too, as is all with shape and dtype."""
    if value is None or _has_dtype(value):
        return None
    if isinstance(value, dict):
        return _of_dict(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        names = tuple(type(value)._fields)
        return TreeLevel("namedtuple", names, tuple(value), lambda v: type(value)(*v))
    if isinstance(value, list | tuple):
        kind = type(value)
        return TreeLevel(kind.__name__, tuple(range(len(value))), tuple(value), kind)
    registered = _of_jax(value)
    if registered is not None:
        return registered
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = tuple(f.name for f in dataclasses.fields(value))
        values = tuple(getattr(value, n) for n in names)
        return TreeLevel(
            "dataclass", names, values, lambda v: dataclasses.replace(value, **dict(zip(names, v, strict=True)))
        )
    return None


def _of_dict(value: dict[Any, Any]) -> TreeLevel:
    def rebuild(values: list[Any]) -> Any:
        pairs = zip(value, values, strict=True)
        return type(value)(pairs) if type(value) is not dict and not hasattr(value, "default_factory") else dict(pairs)

    return TreeLevel("dict", tuple(value), tuple(value.values()), rebuild)


def _of_jax(value: Any) -> TreeLevel | None:
    """One level of a type that is registered with JAX."""
    jax = sys.modules.get("jax")
    if jax is None:
        return None
    leaves, tree = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda x: x is not value)
    if len(leaves) == 1 and leaves[0][1] is value:
        return None
    names = tuple(_key_name(path[0]) for path, _ in leaves)
    kind = "dataclass" if dataclasses.is_dataclass(value) else "node"
    return TreeLevel(kind, names, tuple(v for _, v in leaves), lambda v: jax.tree_util.tree_unflatten(tree, v))


def _has_dtype(value: Any) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "shape")


def _key_name(key: Any) -> Any:
    for field in ("key", "name", "idx"):
        if hasattr(key, field):
            return getattr(key, field)
    return str(key)


def structure_text(node: TreeLevel | None, tree: Any) -> str:
    """What a message says of a tree: its kind and its entries, or its type."""
    return kind_text(tree) if node is None else f"a {node.kind} with the entries {', '.join(map(str, node.keys))}"


def map_with_prefix(
    function: Callable[[Any, Any], Any],
    tree: Any,
    prefix: Any = None,
    ends: Callable[[Any], bool] = lambda _: True,
    where: str = "",
) -> Any:
    """``tree`` with ``function(leaf, given)`` for its leaves; ``given`` is of ``prefix``, which may end earlier.

    ``ends`` returns whether a node is a leaf of the prefix; None is a leaf, too. Raises `AnnotationError` if ``prefix``
    is not a prefix of the tree.
    """
    node = children(tree)
    ended = prefix is None or ends(prefix)
    if node is None:
        if not ended and children(prefix) is not None:
            raise AnnotationError(
                f"{prefix!r} was given for a single array", where=where or None, fix="give one sharding per array"
            )
        return function(tree, prefix)
    if ended:
        return node.rebuild([map_with_prefix(function, v, prefix, ends, where) for v in node.values])
    given = children(prefix)
    if (
        given is None
        or len(given.keys) != len(node.keys)
        or (node.kind == "dict" and set(given.keys) != set(node.keys))
    ):
        raise AnnotationError(
            f"the shardings are {structure_text(given, prefix)}, but the tree is {structure_text(node, tree)}",
            where=where or None,
            fix="give one sharding for the whole tree, or one per entry",
        )
    by_key = dict(zip(given.keys, given.values, strict=True)) if node.kind == "dict" else None
    pairs = zip(node.keys, node.values, given.values, strict=True)
    return node.rebuild(
        [map_with_prefix(function, v, by_key[k] if by_key else g, ends, f"{where}[{k!r}]") for k, v, g in pairs]
    )
