"""Tensors whose values lie where a program takes them, until somebody writes to the tensor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shardc.frontends.torch.element_types import as_numpy
from shardc.launcher.arrays.array import Array
from shardc.launcher.arrays.layout import ArrayLayout
from shardc.launcher.arrays.make_arrays import array_of
from shardc.launcher.arrays.pieces import Whole

__all__ = ["KeptValues"]


@dataclass(frozen=True, slots=True)
class _ResidentValue:
    """A value, the tensor's storage (a weak reference, which no other storage can have) and its version."""

    storage: Any
    view: tuple[Any, ...]
    version: int
    array: Array


def _view(tensor: Any) -> tuple[Any, ...]:
    return tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype


@dataclass(frozen=True, slots=True)
class KeptValues:
    """Arrays by the memory of tensors. PyTorch counts the writes to a tensor: another count is another value."""

    entries: dict[tuple[Any, ...], _ResidentValue] = field(default_factory=dict)

    def keep(self, tensor: Any, array: Array) -> None:
        """``tensor`` has the value ``array`` from now on."""
        from torch.multiprocessing.reductions import StorageWeakRef

        storage = StorageWeakRef(tensor.untyped_storage())
        view = _view(tensor)
        self.entries[storage.cdata, view] = _ResidentValue(storage, view, tensor._version, array)

    def find(self, tensor: Any, layout: ArrayLayout) -> Array | None:
        """The value of ``tensor`` where it lies as ``layout`` says, and was not written to since."""
        if tensor.is_inference():
            return None
        entry = self.entries.get((tensor.untyped_storage()._cdata, _view(tensor)))
        if entry is None or entry.storage.expired() or entry.version != tensor._version:
            return None
        return entry.array if entry.array._layout.same_data(layout) else None

    def lay_out(self, tensor: Any, layout: ArrayLayout, name: str, again: bool = False) -> Array:
        """The kept value of ``tensor``, or the tensor's own, which is kept then. ``again`` reads it in any case.

        PyTorch counts no writes to tensors of its inference mode, so their values are not kept.
        """
        counted = not tensor.is_inference()
        found = self.find(tensor, layout) if counted and not again else None
        if found is None:
            found = array_of(layout, Whole(as_numpy(tensor, name)))
            if counted:
                self.keep(tensor, found)
        return found

    def forget_freed(self) -> None:
        """Leave what belongs to tensors that are no more."""
        for key in [k for k, entry in self.entries.items() if entry.storage.expired()]:
            del self.entries[key]
