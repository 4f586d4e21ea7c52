"""Device meshes: named axes over a list of devices."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.hlo.errors import AnnotationError, InputError, UnsupportedError
from shardc.hlo.units import count_text, sizes_text

__all__ = ["MOST_DEVICES", "MOST_LISTED", "NO_NAMES", "Mesh", "check_listable"]

#: The most devices of a mesh: more than any machine has, and so few that what is made once per device ends.
MOST_DEVICES = 1 << 24
#: Devices that are ever listed one by one: more than any machine has.
MOST_LISTED = 1 << 20
#: What the notations of meshes and shardings have between names of axes.
_NOT_IN_NAMES = ("=", ",", "+", '"', "{", "}", ":(")
#: What they have in the place of a name.
NO_NAMES = frozenset({"", "?", "None", "none"})


def check_listable(count: int, what: str) -> None:
    """Raise `UnsupportedError` where ``what`` has to be told device by device for too many of them."""
    if count > MOST_LISTED:
        fix = f"use at most {MOST_LISTED:,} devices, or device orders that follow the axes of one mesh"
        raise UnsupportedError(f"{what} would list {count_text(count, 'device')} one by one", fix=fix)


def _axes(axes: Any, second: Any) -> tuple[tuple[str, int], ...]:
    """Pairs of name and size; ``second`` is the second argument, which holds names in JAX's own order."""
    items = tuple(axes.items()) if isinstance(axes, Mapping) else tuple(axes) if isinstance(axes, Iterable) else (axes,)
    for pair in items:
        named = isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], str)
        if not named or isinstance(pair[1], bool) or not isinstance(pair[1], int | np.integer):
            of_jax = hasattr(axes, "axis_names")
            fix = "pass JAX's mesh itself as mesh=" if of_jax else f"Mesh({json.dumps(_likely(axes, second))})"
            raise AnnotationError(
                f"{axes!r} does not give a name and a whole number for every axis of the mesh", fix=fix
            )
    return items


def _likely(axes: Any, second: Any) -> dict[str, int]:
    """The axes that were probably meant."""
    if isinstance(axes, Mapping) and all(str(size).isdecimal() for size in axes.values()):
        return {str(name): int(size) for name, size in axes.items()}
    listed = isinstance(axes, tuple | list) and isinstance(second, tuple | list) and len(axes) == len(second)
    if listed and all(isinstance(name, str) and isinstance(size, int) for name, size in zip(second, axes, strict=True)):
        return dict(zip(second, axes, strict=True))
    return {"data": 2, "model": 2}


@dataclass(frozen=True, slots=True, init=False)
class Mesh:
    """Named axes and their sizes over devices ``0 .. size-1``, the outermost axis first.

    ``device_ids`` is None where position i of the row-major grid is device i, otherwise the device ids in grid order. A
    mesh without axes has one position; with one device id it is Shardy's *maximal* mesh, which puts whole tensors on
    that device. Meshes of JAX are accepted wherever a `Mesh` is.

    Raises `AnnotationError` for a repeated axis name, a name with characters of mesh notation, and a size below 1. It
    also refuses device ids that are not a permutation.

    >>> Mesh({"data": 2, "model": 4}).size
    8
    """

    axes: tuple[tuple[str, int], ...]
    device_ids: tuple[int, ...] | None
    name: str = field(compare=False)

    def __init__(
        self,
        axes: Mapping[str, int] | tuple[tuple[str, int], ...] = (),
        device_ids: tuple[int, ...] | None = None,
        name: str = "mesh",
    ) -> None:
        items = _axes(axes, device_ids)
        names = [n for n, _ in items]
        for n, s in items:
            if names.count(n) > 1:
                raise AnnotationError(f"mesh axis {n!r} is given twice", fix="name every axis once")
            if n in NO_NAMES or n != n.strip() or not n.isprintable() or any(c in n for c in _NOT_IN_NAMES):
                fix = f"use a word such as data, without spaces around it and without {' '.join(_NOT_IN_NAMES)}"
                raise AnnotationError(f"a mesh axis cannot be called {n!r}", fix=fix)
            if s < 1:
                raise AnnotationError(f"mesh axis {n!r} has size {s}", fix="sizes are at least 1")
        count = math.prod(s for _, s in items)
        if count > MOST_DEVICES:
            raise AnnotationError(
                f"the mesh has {count_text(count, 'device')}", fix=f"use at most {MOST_DEVICES:,} devices"
            )
        if device_ids is not None:
            if len(device_ids) != count:
                raise AnnotationError(f"mesh of {count} positions has {len(device_ids)} device ids")
            if items and sorted(device_ids) != list(range(count)):
                raise AnnotationError(f"device ids of a mesh must be a permutation of 0..{count - 1}")
            if items and device_ids == tuple(range(count)):
                device_ids = None
        object.__setattr__(self, "axes", items)
        object.__setattr__(self, "device_ids", device_ids)
        object.__setattr__(self, "name", name)

    @property
    def axis_names(self) -> tuple[str, ...]:
        """Names of the axes, the outermost first."""
        return tuple(n for n, _ in self.axes)

    @property
    def shape(self) -> dict[str, int]:
        """Axis name to size, in order."""
        return dict(self.axes)

    @property
    def size(self) -> int:
        """Number of devices."""
        return math.prod(s for _, s in self.axes)

    @property
    def is_maximal(self) -> bool:
        """Whether the mesh puts whole tensors on one given device."""
        return not self.axes and self.device_ids is not None

    def axis_size(self, name: str) -> int:
        """The size of the axis ``name``; raises `AnnotationError` for a name that the mesh lacks.

        >>> mesh.axis_size("model")
        2
        """
        for n, s in self.axes:
            if n == name:
                return s
        raise AnnotationError(
            f"mesh has no axis {name!r}", fix=f"its axes are {', '.join(self.axis_names) or '(none)'}"
        )

    def grid(self) -> NDArray[np.int64]:
        """Device ids as an int64 array with one dimension per axis.

        >>> mesh.grid()
        array([[0, 1],
               [2, 3]])
        """
        check_listable(self.size, "the grid")
        ids = np.arange(self.size) if self.device_ids is None else np.asarray(self.device_ids)
        return ids.reshape([s for _, s in self.axes]).astype(np.int64)

    def coordinates(self, device: int) -> dict[str, int]:
        """The position of ``device`` along each axis; raises `InputError` for a device that the mesh lacks.

        >>> mesh.coordinates(2)
        {'data': 1, 'model': 0}
        """
        if not 0 <= device < self.size:
            raise InputError(f"the mesh {self} has no device {device}", fix=f"its devices are 0 to {self.size - 1}")
        position = operator.index(device) if self.device_ids is None else self.device_ids.index(device)
        out: dict[str, int] = {}
        for name, size in reversed(self.axes):
            position, out[name] = divmod(position, size)
        return {name: out[name] for name in self.axis_names}

    def to_jax(self) -> object:
        """The same mesh as a ``jax.sharding.AbstractMesh`` with automatic axes (needs the extra ``jax``).

        >>> mesh.to_jax().axis_names
        ('data', 'model')
        """
        import jax.sharding

        sizes = tuple(s for _, s in self.axes)
        kinds = getattr(jax.sharding, "AxisType", None)
        types = {} if kinds is None else {"axis_types": (kinds.Auto,) * len(sizes)}
        return jax.sharding.AbstractMesh(sizes, self.axis_names, **types)

    def __str__(self) -> str:
        text = sizes_text(self.shape)
        return text if self.device_ids is None else f"{text} device_ids={list(self.device_ids)}"
