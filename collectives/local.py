"""Virtual devices: all devices of the program live in this process."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.call import CollectiveCall
from shardc.collectives.callback import CallbackPerformer
from shardc.collectives.engine import Engine, Limits, Piece
from shardc.collectives.membership import Ownership, check_call
from shardc.collectives.memory import Memory, aligned_bytes
from shardc.collectives.transport import Prepared
from shardc.native.pool import Pool, Row

__all__ = ["LocalTransport"]


class LocalTransport:
    """A job of one process; collectives are copies and reductions in its memory."""

    process_index = 0
    process_count = 1

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()

    def ownership(self, num_devices: int) -> Ownership:
        return Ownership(num_devices, 1)

    def connect(
        self, calls: Sequence[CollectiveCall], num_devices: int, rows: ctypes.Array[Row], pool: Pool
    ) -> CallbackPerformer:
        return CallbackPerformer(self.prepare(calls, num_devices), rows, self.perform)

    def empty(self, nbytes: int) -> NDArray[np.uint8]:
        return aligned_bytes(nbytes)

    def prepare(self, calls: Sequence[CollectiveCall], num_devices: int) -> tuple[Prepared, ...]:
        engine = Engine(0, (0,) * num_devices, _no_exchange, self._limits)
        return tuple(Prepared(call, check_call(call, num_devices), engine) for call in calls)

    def perform(self, prepared: Prepared, memories: Mapping[int, Memory]) -> None:
        prepared.engine.perform(prepared.call, prepared.members, memories)

    def exchange_objects(self, value: Any, *, patience: float = 1.0) -> list[Any]:
        return [value]

    def concatenate(self, block: NDArray[np.uint8], sizes: Sequence[int]) -> NDArray[np.uint8]:
        return block


def _no_exchange(
    call: CollectiveCall, outgoing: Mapping[int, list[NDArray[Any]]], incoming: Mapping[int, list[Piece]]
) -> dict[int, list[NDArray[Any]]]:
    return {}
