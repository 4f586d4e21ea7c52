"""Tensors whose values lie where a program takes them, until somebody writes to the tensor."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.frontends.torch.element_types import as_numpy
from shardc.frontends.torch.writes import Writes
from shardc.launcher.arrays.array import Array
from shardc.launcher.arrays.layout import ArrayLayout

__all__ = ["KeptValues"]


@dataclass(frozen=True, slots=True)
class _ResidentValue:
    """A value, the tensor's storage (a weak reference, which no other storage can have) and its version."""

    storage: Any
    version: tuple[int, int]
    array: Array


def _place(tensor: Any) -> tuple[Any, ...]:
    """Which elements of which memory a tensor has."""
    return tensor.untyped_storage()._cdata, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


@dataclass(frozen=True, slots=True)
class KeptValues:
    """Arrays by the memory of tensors. Another count of ``writes`` to a tensor is another value."""

    writes: Writes
    entries: dict[tuple[Any, ...], _ResidentValue] = field(default_factory=dict)

    def keep(self, tensor: Any, array: Array) -> None:
        """``tensor`` has the value ``array`` from now on."""
        from torch.multiprocessing.reductions import StorageWeakRef

        storage = StorageWeakRef(tensor.untyped_storage())
        self.entries[_place(tensor)] = _ResidentValue(storage, self.writes.version(tensor), array)

    def find(self, tensor: Any, layout: ArrayLayout) -> Array | None:
        """The value of ``tensor`` where it lies as ``layout`` says, and was not written to since.

        An entry's reference keeps its storage's address from being another's: an equal address is the same storage.
        """
        if tensor.is_inference():
            return None
        entry = self.entries.get(_place(tensor))
        if entry is None or entry.version != self.writes.version(tensor):
            return None
        return entry.array if entry.array._layout.same_data(layout) else None

    def lay_out(
        self, tensor: Any, layout: ArrayLayout, name: str, put: Callable[[NDArray[Any]], Array], again: bool = False
    ) -> Array:
        """The kept value of ``tensor``, or the tensor's own, which ``put`` lays out, and which is kept then.

        ``again`` reads it in any case, as tensors are read whose writes nobody counts. PyTorch counts no writes to
        tensors of its inference mode, so their values are not kept.
        """
        if tensor.is_inference():
            return put(as_numpy(tensor, name))
        found = None if again or not self.writes.counted(tensor) else self.find(tensor, layout)
        if found is None:
            found = put(_borrowed(tensor, as_numpy(tensor, name)))
            self.keep(tensor, found)
        return found

    def forget_freed(self) -> None:
        """Leave what belongs to tensors that are no more."""
        for key in [k for k, entry in self.entries.items() if entry.storage.expired()]:
            del self.entries[key]


def _borrowed(tensor: Any, array: NDArray[Any]) -> NDArray[Any]:
    """``array``, which is the memory of ``tensor``, without keeping that alive: a value that is kept must not keep its
    tensor, and whoever finds it has the tensor."""
    begin = array.ctypes.data
    if not array.nbytes or not array.flags.c_contiguous or begin != tensor.data_ptr():
        return array
    memory = (ctypes.c_uint8 * array.nbytes).from_address(begin)
    return np.frombuffer(memoryview(memory), np.uint8).view(array.dtype).reshape(array.shape)
