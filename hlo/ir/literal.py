"""Constant values: a read-only NumPy array that can be compared and hashed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.types import Shape, array_shape, dtype_of, tuple_shape

__all__ = ["Literal"]


class Literal:
    """An array constant, or a tuple of them.

    ``array`` is read-only and of the element type's NumPy type. A splat keeps one element and zero strides, so
    a huge constant of one value costs nothing; `splat` returns that element. Equality is bitwise (NaN payloads
    and signed zeros count).

    A literal that was *left out* (``{...}`` in text) has a shape and no value: it can be carried through and printed,
    and whoever asks for its ``array`` gets an `UnsupportedError` that says where it comes from. See `left_out`.
    """

    __slots__ = ("_absent", "_array", "_hash", "elements")

    def __init__(self, value: Any = None, *, elements: tuple[Literal, ...] | None = None) -> None:
        self.elements = elements
        self._hash: int | None = None
        self._absent: tuple[Shape, str] | None = None
        if elements is not None:
            self._array: NDArray[Any] = np.empty(0, np.bool_)
            return
        array = np.asarray(value)
        if array.flags.writeable:
            array = array.view()
            array.flags.writeable = False
        self._array = array

    @staticmethod
    def elided(shape: Shape, where: str) -> Literal:
        """A literal of array ``shape`` whose value is not known; ``where`` names the constant and its place."""
        literal = Literal(np.empty(0, shape.dtype.numpy))
        literal._absent = (shape.plain, where)
        return literal

    @property
    def is_left_out(self) -> bool:
        """The value, or for a tuple some element's value, is not known."""
        if self.elements is not None:
            return any(e.is_left_out for e in self.elements)
        return self._absent is not None

    @property
    def left_out_at(self) -> str:
        """Where the constant stands whose value is not known; empty for all others."""
        return "" if self._absent is None else self._absent[1]

    @property
    def array(self) -> NDArray[Any]:
        """The values; raises `UnsupportedError` for a literal that was left out."""
        if self._absent is not None:
            self.require_value()
        return self._array

    def require_value(self) -> None:
        """Raise `UnsupportedError` for a literal that was left out."""
        for element in self.elements or ():
            element.require_value()
        if self._absent is not None:
            shape, where = self._absent
            raise UnsupportedError(
                f"the value of this constant of shape {shape} was left out ('{{...}}'), and is needed here",
                where=where,
                fix="print the program with large constants (print_large_constants=True, --xla_dump_large_constants)",
            )

    @staticmethod
    def full(shape: Shape, value: Any) -> Literal:
        """A splat: every element of ``shape`` is ``value``."""
        return Literal(np.broadcast_to(np.asarray(value, dtype=shape.dtype.numpy), shape.dims))

    @property
    def shape(self) -> Shape:
        if self.elements is not None:
            return tuple_shape(*(e.shape for e in self.elements))
        if self._absent is not None:
            return self._absent[0]
        return array_shape(dtype_of(self.array.dtype), *self.array.shape)

    @property
    def is_splat(self) -> bool:
        """All elements are stored once (zero strides) or there is one element."""
        if self.elements is not None or self._array.size == 0:
            return False
        a = self._array
        return all(s == 0 or n == 1 for s, n in zip(a.strides, a.shape, strict=True))

    @property
    def splat(self) -> Any:
        """The element of a splat as a NumPy scalar; None otherwise."""
        return self.array[(0,) * self.array.ndim] if self.is_splat else None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Literal):
            return NotImplemented
        if self is other:
            return True
        if self.elements is not None or other.elements is not None:
            return self.elements == other.elements
        if self._absent is not None or other._absent is not None:
            return self._absent is not None and other._absent is not None and self._absent[0] == other._absent[0]
        if self.array.shape != other.array.shape or self.array.dtype != other.array.dtype:
            return False
        if self.is_splat and other.is_splat:
            return bool(np.asarray(self.splat).tobytes() == np.asarray(other.splat).tobytes())
        return self.array.tobytes() == other.array.tobytes()

    def __hash__(self) -> int:
        if self._hash is None:
            if self.elements is not None:
                self._hash = hash(self.elements)
            elif self._absent is not None:
                self._hash = hash(self._absent[0])
            else:
                # Splats and dense arrays of equal value must hash alike: first element only.
                first = self.array[(0,) * self.array.ndim].tobytes() if self.array.size else b""
                self._hash = hash((self.array.dtype.name, self.array.shape, first))
        return self._hash

    def __repr__(self) -> str:
        return f"Literal({self.shape})"
