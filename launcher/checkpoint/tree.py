"""Pytrees in checkpoints: leaves by name, and as plain data how they belong together.

Names are the keys on the way to a leaf with dots between them: ``params.dense.w``, ``opt.0.mu``. What the tree says of
itself is enough to make dicts, lists and tuples again; of other containers it knows the fields, and `like` the type.
Python's numbers, strings and None are in the tree itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import numpy as np

from shardc.hlo.errors import EnvironmentProblem, InputError
from shardc.hlo.masked_arrays import refuse_masked
from shardc.hlo.units import count_text, kind_text
from shardc.launcher.arrays.array import Array
from shardc.launcher.arrays.make_arrays import array
from shardc.launcher.arrays.trees import TreeLevel, children

__all__ = ["Flat", "described_leaves", "flatten", "rebuild", "rebuild_like", "wrap_key"]

#: Kinds of leaves that are in the data files, and what the others are called.
_TENSORS = ("array", "numpy", "key")
_KINDS = {"none": "None", "int": "a Python int", "float": "a Python float", "bool": "a Python bool", "str": "a string"}

#: What stands for a tensor, by name, the leaf of ``like`` or None, and for PRNG keys their implementation.
Found = Callable[[str, Any, str], Any]


@dataclass
class Flat:
    """``arrays`` by name (`Array` or NumPy), and the ``tree`` that refers to them."""

    arrays: dict[str, Any] = field(default_factory=dict)
    tree: Any = None


def flatten(tree: Any) -> Flat:
    """The arrays of ``tree`` and its description; `InputError` for leaves that cannot be kept without pickling."""
    flat = Flat()
    names = _Names()
    flat.tree = _out(tree, (), names, flat.arrays)
    return flat


def described_leaves(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[str, str]]:
    """The leaves of a `Flat.tree` by name, with what it says of each: kind, and value where that is in the tree."""
    for kind, content in tree.items():
        if kind in ("list", "tuple"):
            for number, inner in enumerate(content):
                yield from described_leaves(inner, (*path, number))
        elif kind in ("dict", "fields"):
            for key, inner in content:
                yield from described_leaves(inner, (*path, key))
        elif kind not in ("type", "impl"):
            name = content if kind in ("none", "key", "array", "numpy") else ".".join(map(str, path)) or "value"
            yield name, f"{kind} {content} {tree.get('impl', '')}"


class _Names:
    """Gives every leaf a unique name; equal trees get equal names."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def __call__(self, path: tuple[Any, ...]) -> str:
        name = ".".join(map(str, path)) or "value"
        number, found = 1, "_" + name if name == "__metadata__" else name
        while found in self._given:
            number += 1
            found = f"{name}~{number}"
        self._given.add(found)
        return found


def _out(value: Any, path: tuple[Any, ...], names: _Names, arrays: dict[str, Any]) -> Any:
    node = children(value)
    if node is None:
        return _leaf_out(value, names(path), arrays)
    inner = [[k, _out(v, (*path, k), names, arrays)] for k, v in zip(node.keys, node.values, strict=True)]
    if node.kind in ("list", "tuple"):
        return {node.kind: [v for _, v in inner]}
    wrong = next((k for k in node.keys if not isinstance(k, str | int) or isinstance(k, bool)), None)
    if wrong is not None:
        raise InputError(
            f"a checkpoint cannot hold the key {wrong!r} of a dict",
            where=".".join(map(str, path)) or None,
            fix="use strings or integers as keys",
        )
    return {"dict": inner} if node.kind == "dict" else {"fields": inner, "type": type(value).__qualname__}


def _leaf_out(value: Any, name: str, arrays: dict[str, Any]) -> Any:
    if value is None:
        return {"none": name}
    if type(value) in (bool, int, str):
        return {type(value).__name__: value if not isinstance(value, int) or abs(value) < 1 << 53 else str(value)}
    if type(value) is float:
        return {"float": value.hex()}
    if type(value) is complex:
        return {"complex": [value.real.hex(), value.imag.hex()]}
    if "key<" in str(getattr(value, "dtype", "")):
        import jax

        arrays[name] = np.asarray(jax.random.key_data(value))
        return {"key": name, "impl": str(jax.random.key_impl(value))}
    if isinstance(value, Array):
        arrays[name] = value
        return {"array": name}
    if hasattr(value, "addressable_shards") and hasattr(value.sharding, "spec"):
        arrays[name] = array(value, value.sharding)
        return {"array": name}
    if isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array__"):
        refuse_masked(value, name)
        plain = np.asarray(value)
        arrays[name] = plain if plain.dtype.isnative else plain.astype(plain.dtype.newbyteorder("="))
        return {"numpy": name}
    raise InputError(
        f"a checkpoint cannot hold {kind_text(value)}",
        where=name,
        fix="use arrays, Python numbers, strings and None, in dicts, lists, tuples, dataclasses or JAX pytrees",
    )


def rebuild(tree: Any, found: Found) -> Any:
    """The tree that ``tree`` describes, with what ``found`` gives for its arrays; dicts for unknown containers."""
    ((kind, content),) = [(k, v) for k, v in tree.items() if k not in ("type", "impl")]
    match kind:
        case "list":
            return [rebuild(v, found) for v in content]
        case "tuple":
            return tuple(rebuild(v, found) for v in content)
        case "dict" | "fields":
            return {k: rebuild(v, found) for k, v in content}
        case _:
            return _leaf_in(kind, content, tree, found, None)


def _leaf_in(kind: str, content: Any, tree: Mapping[str, Any], found: Found, like: Any) -> Any:
    match kind:
        case "none":
            return None
        case "bool" | "str":
            return content
        case "int":
            return int(content)
        case "float":
            return float.fromhex(content)
        case "complex":
            return complex(*map(float.fromhex, content))
        case "key":
            return found(content, None, str(tree["impl"]))
        case _:
            return found(content, like, "")


def wrap_key(data: Any, impl: str) -> Any:
    """Typed PRNG keys of their data."""
    try:
        import jax
    except ImportError:
        raise EnvironmentProblem(
            "the checkpoint contains JAX's PRNG keys", fix="install JAX: pip install jax"
        ) from None
    return jax.random.wrap_key_data(np.asarray(data), impl=impl)


def rebuild_like(like: Any, tree: Any, found: Found, where: str) -> Any:
    """A tree of ``like``'s structure with the leaves that ``tree`` has at the same places; None stays None.

    Raises `InputError` for a place that the checkpoint has not.
    """
    return _like(like, tree, (), found, where)


def _like(like: Any, tree: Any, path: tuple[Any, ...], found: Found, where: str) -> Any:
    if like is None:
        return None
    node = children(like)
    kind, content = next(iter(tree.items()))
    inner = _inner(kind, content)
    if node is None:
        if inner is not None:
            raise _other_structure(path, where, f"a tree of {count_text(len(inner), 'entry', 'entries')}", "a leaf")
        if kind not in _TENSORS and hasattr(like, "dtype") and hasattr(like, "shape"):
            raise _other_structure(path, where, f"{_KINDS.get(kind, kind)}, not as an array", "an array")
        return _leaf_in(kind, content, tree, found, like)
    if inner is None:
        raise _other_structure(path, where, "a leaf", f"a {node.kind} of {len(node.keys)} entries")
    if kind == "dict" and node.kind in ("list", "tuple"):  # a dict has no order that a position could mean
        raise _other_structure(path, where, "a dict", f"a {node.kind}")
    values = [
        None if v is None else _like(v, _entry(inner, k, node, path, where), (*path, k), found, where)
        for k, v in zip(node.keys, node.values, strict=True)
    ]
    return node.rebuild(values)


def _inner(kind: str, content: Any) -> dict[Any, Any] | None:
    if kind in ("dict", "fields"):
        return {k: v for k, v in content}  # noqa: C416
    return dict(enumerate(content)) if kind in ("list", "tuple") else None


def _entry(inner: dict[Any, Any], key: Any, node: TreeLevel, path: tuple[Any, ...], where: str) -> Any:
    if key in inner:
        return inner[key]
    if node.kind in ("list", "tuple", "namedtuple", "node") and isinstance(key, int):
        values = list(inner.values())
        if key < len(values):
            return values[key]
    near = get_close_matches(str(key), [str(k) for k in inner], 3) or [str(k) for k in list(inner)[:5]]
    raise InputError(
        f"the checkpoint has no {'.'.join(map(str, (*path, key)))}",
        where=where,
        fix=f"at this place it has {', '.join(near) or 'nothing'}; omit the entry from like=, or give None for it",
    )


def _other_structure(path: tuple[Any, ...], where: str, saved: str, wanted: str) -> InputError:
    name = ".".join(map(str, path)) or "the tree"
    return InputError(
        f"{name} was saved as {saved}, but like= has {wanted}",
        where=where,
        fix="load without like= to see the saved structure",
    )
