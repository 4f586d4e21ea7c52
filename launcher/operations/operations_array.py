"""`OperationsArray`: a sharded array with NumPy's operators, functions and methods, computed where the shards lie."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from shardc.launcher.arrays.sharded_array import ShardedArray
from shardc.launcher.operations.method import Method

if TYPE_CHECKING:
    from shardc.hlo.numpy.swaps import Moved  # Only calls need it, and not every program calls.

__all__ = ["OperationsArray", "ViewCall"]

#: What makes a view of its base: a function, the encoded arguments, and which leaf of its result the view is.
ViewCall = tuple[Any, tuple[Any, ...], int]


class OperationsArray(NDArrayOperatorsMixin, ShardedArray):
    """What NumPy code sees as an array: every operation is a small program over the array's own mesh."""

    __slots__ = ("_changes", "moved")
    #: The last assignment of one part of this array to another, from the first on.
    moved: Moved
    __array_priority__ = 900.0

    @property
    def operations_type(self) -> type[ShardedArray]:
        """What results of operations are."""
        return type(self)

    @property
    def view_of(self) -> tuple[OperationsArray, ViewCall] | None:
        """The array that this is a view of, and how; None for one with memory of its own."""
        return None

    def take_computed(self) -> bool:
        """Whether the value is already computed, or is to be computed now, because it is read again."""
        return True

    def computed(self) -> OperationsArray:
        """An array with memory of its own that has this value."""
        return self

    @abstractmethod
    def make_view(self, made_by: ViewCall, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Self:
        """A view of this array."""

    @property
    def version(self) -> int:
        """Counts the changes of this array."""
        self._live_shards()  # Nobody reads what was donated.
        return getattr(self, "_changes", 0)

    @property
    def read_at(self) -> int:
        """The version of the base that a view was last taken or read at."""
        return 0

    def become(self, new: ShardedArray) -> None:
        """Have the value of ``new``, whose memory this takes over."""
        self._changes = getattr(self, "_changes", 0) + 1
        self._layout, self._shards, self._shared, self._gone = new._layout, new._shards, new._shared, new._gone

    # NumPy's protocols.

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        from shardc.launcher.operations.call import call

        return call(ufunc if method == "__call__" else getattr(ufunc, method), inputs, options)

    def __array_function__(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        from shardc.launcher.operations.call import call

        return call(func, args, kwargs)

    def _call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        from shardc.launcher.operations.call import call

        return call(function, (self, *args), kwargs)

    # Indexing.

    def __getitem__(self, key: Any) -> Any:
        return self._call(operator.getitem, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        from shardc.launcher.operations.call import assign_part

        if getattr(value, "is_masked", False):  # y[mask]
            value = value.under(key)
            key = value.mask
        assign_part(self, key, value)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    # What an ndarray has besides: everything that has a name in NumPy, too.

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def T(self) -> Any:  # noqa: N802 - NumPy's name
        return self._call(np.transpose)

    @property
    def mT(self) -> Any:  # noqa: N802 - NumPy's name
        return self._call(np.matrix_transpose)

    @property
    def real(self) -> Any:
        return self._call(np.real)

    @real.setter
    def real(self, value: Any) -> None:
        self._call(setattr, "real", value)

    @property
    def imag(self) -> Any:
        return self._call(np.imag)

    @imag.setter
    def imag(self, value: Any) -> None:
        self._call(setattr, "imag", value)

    def __pow__(self, exponent: Any) -> Any:
        # Of a bool this is int8, and np.power(x, 2) is int64.
        return np.square(self) if type(exponent) is int and exponent == 2 else super().__pow__(exponent)

    def __str__(self) -> str:
        held = not self.is_deleted and all(self._held(d) is not None for d in self._layout.holders.values())
        return str(np.asarray(self)[()]) if held else repr(self)

    def __copy__(self) -> Any:
        return self._call(np.copy)

    def __deepcopy__(self, memo: Any) -> Any:
        return self._call(np.copy)


_METHODS = (
    "all any argmax argmin argpartition argsort choose clip compress conj conjugate copy cumprod cumsum diagonal dot "
    "fill flatten max mean min nonzero partition prod ptp put ravel repeat reshape round searchsorted sort squeeze std "
    "sum swapaxes take trace transpose var view"
)


def _method(name: str) -> Any:
    function = Method(name)

    def method(self: OperationsArray, *args: Any, **kwargs: Any) -> Any:
        return self._call(function, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"``numpy.ndarray.{name}``, computed on the shards."
    return method


for _name in _METHODS.split():
    setattr(OperationsArray, _name, _method(_name))
