"""Nested arguments and results: dicts (by sorted key), lists, tuples, named tuples and None, as JAX flattens them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shardc.hlo.errors import InputError
from shardc.hlo.numpy.random_stream import RandomStream
from shardc.hlo.units import count_text

__all__ = ["LEAF", "Tree", "flatten", "streams_of", "unflatten"]


@dataclass(frozen=True, slots=True)
class Tree:
    """The structure of a nested value: its ``kind``, the keys of its children, and the children. A leaf has none."""

    kind: Any
    keys: tuple[Any, ...] = ()
    children: tuple[Tree, ...] = ()

    @property
    def count(self) -> int:
        """Number of leaves."""
        return 1 if self.kind is None else sum(c.count for c in self.children)

    def names(self, prefix: str) -> Iterator[str]:
        """The leaves' names: ``state['w'][0]``."""
        if self.kind is None:
            yield prefix
            return
        for key, child in zip(self.keys, self.children, strict=True):
            step = f".{key}" if _is_named(self.kind) or issubclass(self.kind, RandomStream) else f"[{key!r}]"
            yield from child.names(prefix + step)

    def difference(self, given: Tree, place: str) -> str:
        """Where ``given`` is the first to differ, in words; ``place`` is what this tree is called. Empty: nowhere.

        >>> flatten({"w": 1})[1].difference(flatten({"v": 1})[1], "state")
        'v is unexpected in state, and w is missing'
        """
        if self == given:
            return ""
        if self.kind is not given.kind:
            return f"{place} is {given.title}, and was {self.title}"
        if self.kind is dict and set(self.keys) != set(given.keys):
            more = ", ".join(str(k) for k in given.keys if k not in self.keys)
            less = ", ".join(str(k) for k in self.keys if k not in given.keys)
            parts = [f"{more} is unexpected in {place}"] * bool(more) + [f"{less} is missing"] * bool(less)
            return ", and ".join(parts)
        if len(self.children) != len(given.children):
            return f"{place} has {count_text(len(given.children), 'entry', 'entries')}, and had {len(self.children)}"
        inner = zip(self.keys, self.children, given.children, strict=True)
        return next((found for key, a, b in inner if (found := a.difference(b, f"{place}[{key!r}]"))), "")

    @property
    def title(self) -> str:
        """What this is, for people: ``an array``, ``a list of 3``."""
        if self.kind is None:
            return "an array"
        return "None" if self.kind is type(None) else f"a {self.kind.__name__} of {len(self.children)}"

    def __str__(self) -> str:
        if self.kind is None:
            return "*"
        inner = [str(c) for c in self.children]
        if self.kind is dict:
            return "{" + ", ".join(f"{k!r}: {c}" for k, c in zip(self.keys, inner, strict=True)) + "}"
        if self.kind is type(None):
            return "None"
        text = ", ".join(inner)
        return (
            f"[{text}]" if self.kind is list else f"({text})" if self.kind is tuple else f"{self.kind.__name__}({text})"
        )


LEAF = Tree(None)


def _is_named(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def _children(value: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]] | None:
    """Keys and children; None for a leaf."""
    if value is None:
        return (), ()
    if type(value) is dict:
        try:
            keys = tuple(sorted(value))
        except TypeError:
            raise InputError(
                f"the keys of a dict cannot be sorted: {list(value)}", fix="use keys of one type, such as str"
            ) from None
        return keys, tuple(value[k] for k in keys)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return tuple(value._fields), tuple(value)
    if isinstance(value, RandomStream):
        return ("state",), (value.state,)
    if type(value) in (list, tuple):
        return tuple(range(len(value))), tuple(value)
    return None


def flatten(value: Any) -> tuple[list[Any], Tree]:
    """The leaves, depth first, and the structure. Whatever is no container is a leaf."""
    found = _children(value)
    if found is None:
        return [value], LEAF
    leaves: list[Any] = []
    trees: list[Tree] = []
    for child in found[1]:
        more, tree = flatten(child)
        leaves += more
        trees.append(tree)
    return leaves, Tree(type(value), found[0], tuple(trees))


def unflatten(tree: Tree, leaves: Iterator[Any]) -> Any:
    """The value of this structure with the next leaves."""
    if tree.kind is None:
        return next(leaves)
    children = [unflatten(c, leaves) for c in tree.children]
    if tree.kind is type(None):
        return None
    if issubclass(tree.kind, RandomStream):
        return tree.kind(children[0])
    if tree.kind is dict:
        return dict(zip(tree.keys, children, strict=True))
    return tree.kind(*children) if _is_named(tree.kind) else tree.kind(children)


def streams_of(value: Any) -> Iterator[RandomStream]:
    """The random streams in a nested value, depth first."""
    if isinstance(value, RandomStream):
        yield value
        return
    found = _children(value)
    for child in found[1] if found is not None else ():
        yield from streams_of(child)
