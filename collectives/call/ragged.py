"""What a ragged exchange that did not fit tells: its tables, read where they lie."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.call.call import CollectiveCall
from shardc.hlo.errors import RunError
from shardc.hlo.ragged_rows import RaggedGroup

__all__ = ["name_devices", "ragged_fault"]

#: Operands: the tables.
_TABLES = range(2, 6)


def name_devices(rank_of: Callable[[int], int]) -> Callable[[int], str]:
    """How messages call devices whose ranks are known."""
    return lambda device: f"device {device} (rank {rank_of(device)})"


def ragged_fault(
    call: CollectiveCall,
    devices: Sequence[int],
    pointers: Sequence[int],
    name: Callable[[int], str] = "device {}".format,
) -> RunError | None:
    """What is wrong in the group of ``devices``; ``pointers`` are the addresses of operands, operand by operand, member
    by member. None where everything fits."""
    assert call.ragged is not None
    g, count = len(devices), call.operands[2].count

    def read(operand: int, position: int) -> NDArray[np.int64]:
        return np.frombuffer(ctypes.string_at(pointers[operand * g + position], 8 * count), np.int64)

    starts, sizes, targets, received = ([read(operand, p) for p in range(g)] for operand in _TABLES)
    group = RaggedGroup(devices, starts, sizes, targets, received, call.ragged.data_rows, call.ragged.output_rows, name)
    return group.fault(call.source or f"%{call.name}")
