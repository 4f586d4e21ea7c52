"""Constant values: a read-only NumPy array that can be compared and hashed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.hlo.types import Shape, array_shape, dtype_of, tuple_shape

__all__ = ["Literal"]


class Literal:
    """An array constant, or a tuple of them.

    ``array`` is read-only and of the element type's NumPy type. A splat keeps one element and zero strides, so
    a huge constant of one value costs nothing; `splat` returns that element. Equality is bitwise (NaN payloads
    and signed zeros count).
    """

    __slots__ = ("_hash", "array", "elements")

    def __init__(self, value: Any = None, *, elements: tuple[Literal, ...] | None = None) -> None:
        self.elements = elements
        self._hash: int | None = None
        if elements is not None:
            self.array: NDArray[Any] = np.empty(0, np.bool_)
            return
        array = np.asarray(value)
        if array.flags.writeable:
            array = array.view()
            array.flags.writeable = False
        self.array = array

    @staticmethod
    def full(shape: Shape, value: Any) -> Literal:
        """A splat: every element of ``shape`` is ``value``."""
        return Literal(np.broadcast_to(np.asarray(value, dtype=shape.dtype.numpy), shape.dims))

    @property
    def shape(self) -> Shape:
        if self.elements is not None:
            return tuple_shape(*(e.shape for e in self.elements))
        return array_shape(dtype_of(self.array.dtype), *self.array.shape)

    @property
    def is_splat(self) -> bool:
        """All elements are stored once (zero strides) or there is one element."""
        if self.elements is not None or self.array.size == 0:
            return False
        a = self.array
        return all(s == 0 or n == 1 for s, n in zip(a.strides, a.shape, strict=True))

    @property
    def splat(self) -> Any:
        """The element of a splat as a NumPy scalar; None otherwise."""
        return self.array[(0,) * self.array.ndim] if self.is_splat else None

    def _key(self) -> tuple[object, ...]:
        if self.elements is not None:
            return tuple(e._key() for e in self.elements)
        data = np.asarray(self.splat).tobytes() if self.is_splat else self.array.tobytes()
        return (self.array.dtype.str, self.array.dtype.name, self.array.shape, self.is_splat, data)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Literal):
            return NotImplemented
        if self is other:
            return True
        if self.elements is not None or other.elements is not None:
            return self.elements == other.elements
        if self.array.shape != other.array.shape or self.array.dtype != other.array.dtype:
            return False
        if self.is_splat and other.is_splat:
            return bool(np.asarray(self.splat).tobytes() == np.asarray(other.splat).tobytes())
        return self.array.tobytes() == other.array.tobytes()

    def __hash__(self) -> int:
        if self._hash is None:
            if self.elements is not None:
                self._hash = hash(self.elements)
            else:
                # Splats and dense arrays of equal value must hash alike: first element only.
                first = self.array[(0,) * self.array.ndim].tobytes() if self.array.size else b""
                self._hash = hash((self.array.dtype.name, self.array.shape, first))
        return self._hash

    def __repr__(self) -> str:
        return f"Literal({self.shape})"
