"""The tables of addresses of a step on a GPU: arguments and results lie in its memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardc.collectives.call.transport import Transport
from shardc.compiler.executable import Executable
from shardc.launcher.arrays.sharded_array import ShardedArray
from shardc.launcher.arrays.shards import Arrangement, Shards
from shardc.launcher.driver.arguments import place
from shardc.launcher.driver.step_tables import StepTables
from shardc.launcher.gpu.memory import GpuContext

__all__ = ["GpuTables"]


class GpuTables(StepTables):
    """Arrays that lie on the GPU as a step takes them are taken as they are, all else is copied there."""

    def __init__(
        self,
        executable: Executable,
        devices: tuple[int, ...],
        transport: Transport,
        context: GpuContext,
        array_type: type[ShardedArray],
    ) -> None:
        self._gpu = self.context = context
        super().__init__(executable, devices, transport, array_type)
        self._arrangements = [Arrangement.of(layout, devices) for layout in self.layouts]

    def put(self, number: int, value: Any, *, share: bool = False) -> ShardedArray:
        return self._array_type(self.layouts[number], self._copied(number, value), self._transport)

    def _place_value(self, k: int, value: Any) -> tuple[Shards, bool]:
        return self._copied(k, value), True

    def _copied(self, k: int, value: Any) -> Shards:
        """A value's shards on the GPU, one after another: those of devices with equal ones once."""
        blocks, _ = place(value, self.layouts[k], self._devices, self.pool, self.titles[k])
        arrangement = self._arrangements[k]
        lease = self._gpu.pool.lease(arrangement.nbytes)
        addresses = arrangement.offsets + lease.address
        for i in np.flatnonzero(arrangement.firsts):
            self._gpu.upload(int(addresses[i]), blocks[i][: arrangement.shard_bytes])
        return Shards.on_device(arrangement, addresses, lease, self._gpu)

    def _unread(self, nbytes: int) -> tuple[Any, int]:
        lease = self._gpu.pool.lease(nbytes)
        return lease, lease.address

    def _fresh(self, result: Any) -> Shards:
        lease = self._gpu.pool.lease(result.arrangement.nbytes)
        return Shards.on_device(result.arrangement, result.addresses(lease.address), lease, self._gpu)
