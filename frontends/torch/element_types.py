"""Element types of PyTorch and NumPy, and tensors as arrays of NumPy's over the same memory."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from shardc.hlo.errors import InputError, UnsupportedError
from shardc.hlo.ir.types import dtype_of
from shardc.launcher.arrays.array import Array
from shardc.launcher.arrays.dlpack import CPU, from_dlpack, to_dlpack
from shardc.launcher.arrays.gather import gather, in_one_piece

__all__ = ["ExportedArray", "as_numpy", "as_tensor", "numpy_type"]


def numpy_type(torch: Any, dtype: Any) -> np.dtype[Any]:
    """NumPy's type for one of PyTorch's; UnsupportedError for quantised ones and others that HLO lacks."""
    name = str(dtype).removeprefix("torch.")
    try:
        found = np.dtype(getattr(ml_dtypes, name, name))
        dtype_of(found)
        return found
    except (TypeError, KeyError):
        raise UnsupportedError(
            f"tensors of {dtype} are not supported",
            fix="convert them to a type of NumPy and HLO, such as float32 or complex64",
        ) from None


def as_numpy(tensor: Any, where: str) -> NDArray[Any]:
    """The memory of a dense tensor on the CPU as an array, with its strides; InputError for others."""
    if tensor.is_meta:
        raise InputError(
            "the tensor is on the meta device: it has a shape but no values",
            where=where,
            fix="load the weights, or call module.to_empty(device='cpu')",
        )
    tensor = tensor.detach()
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    if str(tensor.layout) != "torch.strided":
        raise InputError(
            f"tensors of layout {tensor.layout} are not supported", where=where, fix="pass tensor.to_dense()"
        )
    return from_dlpack(tensor, where)


def as_tensor(torch: Any, array: Array) -> Any:
    """A result as a tensor: over the memory of the shard that holds it all, or of shards that lie one after another;
    else put together from all shards."""
    whole = len(array._layout.holders) == 1 and array._held(next(iter(array._layout.holders.values()))) is not None
    if whole:
        return torch.from_dlpack(array)
    lying = in_one_piece(array)
    return torch.from_dlpack(ExportedArray(gather(array) if lying is None else lying))


class ExportedArray:
    """An array for `torch.from_dlpack`, with the element types that NumPy's own export lacks."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array

    def __dlpack__(self, *, max_version: tuple[int, int] | None = None, copy: bool | None = None, **_: Any) -> Any:
        return to_dlpack(self._array, max_version, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU
