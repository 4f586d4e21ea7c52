"""The memory of one device as collectives see it: arena, arguments, results and constants."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.call import BufferRef, CollectiveOperand
from shardc.hlo.types import DType
from shardc.native.pool import Row

__all__ = ["PASSED_BY", "DeviceMemory", "Memory", "RowMemory", "aligned_bytes", "wants_result"]

_ALIGNMENT = 64
#: Where in a device's arena the mask of groups lies for which it computes nothing: the first device of such a group in
#: this process does. 8 bytes.
PASSED_BY = 8


def aligned_bytes(nbytes: int) -> NDArray[np.uint8]:
    """Uninitialised memory of ``nbytes`` bytes whose address is a multiple of 64."""
    block = np.empty(nbytes + _ALIGNMENT, np.uint8)
    start = -block.ctypes.data % _ALIGNMENT
    return block[start : start + nbytes]


class Memory(Protocol):
    """Where the buffers of one device are."""

    def view(self, ref: BufferRef, dtype: DType) -> NDArray[Any]:
        """The elements that ``ref`` names, without a copy."""
        ...


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Byte arrays of one device; a `BufferRef` names a range in one of them."""

    arena: NDArray[np.uint8]
    arguments: Sequence[NDArray[np.uint8]]
    results: Sequence[NDArray[np.uint8]]
    constants: NDArray[np.uint8]

    def view(self, ref: BufferRef, dtype: DType) -> NDArray[Any]:
        """The elements that ``ref`` names, without a copy."""
        match ref.space:
            case "arena":
                whole = self.arena
            case "argument":
                whole = self.arguments[ref.index]
            case "result":
                whole = self.results[ref.index]
            case _:
                whole = self.constants
        return whole[ref.offset : ref.offset + ref.nbytes].view(dtype.numpy)


@dataclass(frozen=True, slots=True)
class RowMemory:
    """The same by address, as a `Row` has it; arguments and results are looked up each time."""

    row: Row

    def address(self, ref: BufferRef) -> int:
        """Where ``ref`` begins."""
        match ref.space:
            case "arena":
                base = self.row.arena
            case "argument":
                base = ctypes.c_void_p.from_address(self.row.arguments + 8 * ref.index).value
            case "result":
                base = ctypes.c_void_p.from_address(self.row.results + 8 * ref.index).value
            case _:
                base = self.row.constants
        return (base or 0) + ref.offset

    def view(self, ref: BufferRef, dtype: DType) -> NDArray[Any]:
        """The elements that ``ref`` names, without a copy."""
        block = (ctypes.c_uint8 * ref.nbytes).from_address(self.address(ref))
        return np.ctypeslib.as_array(block).view(dtype.numpy) if ref.nbytes else np.empty(0, dtype.numpy)


def wants_result(row: Row, operand: CollectiveOperand) -> bool:
    """Does the device of ``row`` need its own result of ``operand``?"""
    if operand.wanted < 0:
        return True
    return not ctypes.c_uint64.from_address(row.arena + PASSED_BY).value >> operand.wanted & 1
