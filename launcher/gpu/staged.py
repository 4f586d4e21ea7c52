"""Collectives through the host's memory: arenas there that the transport's collective executor works on."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import numpy as np

from shardc.collectives.call.call import BufferRef, CollectiveCall
from shardc.collectives.call.transport import Transport
from shardc.collectives.gpu.places import BufferPlaces
from shardc.collectives.gpu.staging import stage_calls
from shardc.launcher.gpu.memory import Block, GpuContext
from shardc.native.threads.pool import Row

__all__ = ["Staged"]


class Staged:
    """``calls`` on copies in memory of ``transport``; ``places`` are where this process's devices have theirs."""

    def __init__(
        self,
        context: GpuContext,
        calls: Sequence[CollectiveCall],
        places: Mapping[int, BufferPlaces],
        transport: Transport,
    ) -> None:
        self._context, self._places = context, places
        self._staging = stage_calls(calls)
        self._calls = {c.index: c for c in self._staging.calls}
        self._arenas = {d: transport.empty(self._staging.nbytes) for d in places}
        for arena in self._arenas.values():
            arena[:] = 0
        self._nothing = (ctypes.c_void_p * 1)()

    @property
    def calls(self) -> tuple[CollectiveCall, ...]:
        """The collectives as the transport is to do them, on `rows`."""
        return self._staging.calls

    def call(self, index: int) -> CollectiveCall:
        return self._calls[index]

    def rows(self) -> ctypes.Array[Row]:
        """The devices, as `shardc.native.drive.drive_loop` takes them."""
        nothing = ctypes.addressof(self._nothing)
        rows = [Row(int(a.ctypes.data), nothing, nothing, nothing, d, 0) for d, a in self._arenas.items()]
        return (Row * len(rows))(*rows)

    def fetch(self, index: int) -> None:
        """Operands of collective ``index`` come to the host."""
        pairs = self._staging.incoming(index)
        self._context.download(
            [(self._places[d].address(there), _part(a, here)) for d, a in self._arenas.items() for there, here in pairs]
        )

    def deliver(self, index: int) -> None:
        """Its results go to the devices."""
        for device, arena in self._arenas.items():
            for there, here in self._staging.outgoing(index):
                self._context.upload(self._places[device].address(there), _part(arena, here))


def _part(arena: Block, ref: BufferRef) -> Block:
    part: Block = np.asarray(arena)[ref.offset : ref.offset + ref.nbytes]
    return part
