"""`shardc.Array`: what users have of the arrays of compiled programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardc.hlo.errors import InputError
from shardc.hlo.ir.types import dtype_of
from shardc.launcher.arrays.layout import ArrayLayout
from shardc.launcher.arrays.sharded_array import Block, ShardedArray
from shardc.launcher.operations.operations_array import OperationsArray, ViewCall

__all__ = ["Array"]


class Array(OperationsArray):
    """A global array whose shards are on the devices of a mesh: what compiled programs return.

    It has a global ``shape`` and ``dtype``, a ``sharding``, and the shards of this process. NumPy's operators,
    functions (``np.sum(x)``) and methods work on it. Each is a program over the array's mesh, compiled once for
    arguments of the same shapes, types and layouts, and returns another `Array`. In a job all processes make the same
    calls. ``x[0] = 1``, ``x += y`` and ``out=`` change it, and its views see the change. Operations whose result shape
    depends on values (``np.unique``) need the whole value on this process. Where a process lacks it, ``x[mask]``
    supports only arithmetic, reductions and assignments under the same mask: ``x[x > 5] -= 7``.

    ``np.asarray(x)``, ``float(x)`` and ``x.item()`` never send anything. They work where this process holds the whole
    value: always with virtual devices, and for replicated values. Otherwise they raise `InputError`; `gather` sends the
    value to every rank.

    >>> x = shardc.array(np.arange(8.0), (mesh, P("data")))
    >>> float((2 * x).sum())
    56.0
    >>> [(shard.device, shard.index) for shard in x.addressable_shards][:2]
    [(0, (slice(0, 4, None),)), (1, (slice(0, 4, None),))]
    """

    __slots__ = ()

    def reshard(self, sharding: Any, *, mesh: Any = None) -> Array:
        """Return the same array in another layout, see `shardc.reshard`. In a job every process must call it.

        >>> x = shardc.array(np.ones((8, 4)), (mesh, P("data")))
        >>> x.reshard(P("model"))
        shardc.Array(f64[8,4], [{model}, {}])
        """
        from shardc.launcher.arrays.reshard import reshard

        moved: Array = reshard(self, sharding, mesh=mesh)
        return moved

    def blocks_under(self, target: ArrayLayout, devices: Sequence[int], take: Callable[[int], Block]) -> list[Block]:
        from shardc.launcher.arrays.reshard import blocks_under

        return blocks_under(self, target, devices, take)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self._transport.process_count > 1:
            raise InputError(
                "a shardc.Array of several processes cannot be pickled",
                where=self._title(),
                fix="pickle shardc.gather(x), a NumPy array, or use shardc.save_checkpoint",
            )
        return super().__reduce_ex__(protocol)

    def make_view(self, made_by: ViewCall, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return _ArrayView(self, made_by, shape, dtype)


class _ArrayView(Array):
    """A view of ``base``, as ``made_by`` makes it: read from the base when it is used, and again when that changed.

    A program that uses it first reads it from the base, whose part it then need not keep; from the second on it is
    kept, until the base changes.
    """

    __slots__ = ("_base", "_computed", "_dtype", "_made_by", "_of", "_shape", "_taken", "_used")

    def __init__(self, base: Array, made_by: ViewCall, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._base, self._made_by, self._shape, self._dtype = base, made_by, shape, dtype
        self._computed: Array | None = None
        self._of = self._used = -1
        self._taken = base.version

    def __getattr__(self, name: str) -> Any:
        # What an array keeps of its memory is not set in a view: it is that of the computed value.
        if name in ("_layout", "_shards", "_shared", "_gone"):
            return getattr(self.computed(), name)
        if name == "_transport":
            return self._base._transport
        raise AttributeError(f"a view of a shardc.Array has no attribute {name!r}")

    @property
    def operations_type(self) -> type[ShardedArray]:
        return Array

    @property
    def view_of(self) -> tuple[OperationsArray, ViewCall] | None:
        return self._base, self._made_by

    @property
    def read_at(self) -> int:
        return max(self._taken, self._used, self._of)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dtype

    def astype(self, dtype: Any, *args: Any, **kwargs: Any) -> Any:
        """An array with memory of its own: see `ShardedArray.astype`."""
        return self.computed().astype(dtype, *args, **{**kwargs, "copy": True})

    def __repr__(self) -> str:
        if self._is_readable:
            return super().__repr__()
        dims = ",".join(map(str, self.shape))
        return f"shardc.Array({dtype_of(self.dtype)}[{dims}], a view of {self._base!r})"

    def __str__(self) -> str:
        return super().__str__() if self._is_readable else repr(self)

    @property
    def _is_readable(self) -> bool:
        """Whether the value is there, or this process alone can compute it."""
        known = self._computed is not None and self._of == self._base.version
        return known or self._transport.process_count == 1

    def take_computed(self) -> bool:
        version = self._base.version
        again = version in (self._used, self._of)
        self._used = version
        return again

    def computed(self) -> OperationsArray:
        version = self._base.version
        if self._computed is None or self._of != version:
            self._used = self._of = -1  # It is to be read from the base.
            self._computed, self._of = self._call(np.copy), version
        return self._computed

    def become(self, new: ShardedArray) -> None:
        raise AssertionError("programs write through views")
