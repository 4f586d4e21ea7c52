"""Whether the copies of a shard that several ranks hold are equal."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.hlo.errors import InputError
from shardc.launcher.arrays.pieces import region_text
from shardc.launcher.arrays.sharded_array import ShardedArray

__all__ = ["need_equal_copies"]


def need_equal_copies(array: ShardedArray, title: str) -> None:
    """Raise `InputError` on all ranks if two of them hold different bytes of the same part. All ranks call it together.

    ``title`` says which array it is. Elements of padding do not count.
    """
    transport, layout = array._transport, array._layout
    if transport.process_count == 1 or layout.maximal:
        return
    mine = {
        device: _digest(layout.without_padding(block, layout.positions[device]))
        for device, block in array._live().items()
    }
    everybody = transport.exchange_objects(mine, doing=f"a comparison of the copies of {title}")
    digests = {device: found for theirs in everybody for device, found in theirs.items()}
    table = transport.ownership(layout.num_devices).table()
    first: dict[object, int] = {}
    for device in range(layout.num_devices):
        other = first.setdefault(layout.contents[device], device)
        if digests[device] != digests[other]:
            region = region_text(layout.region(layout.positions[device]))
            raise InputError(
                f"ranks {table[other]} and {table[device]} hold different copies of {region}",
                where=title,
                fix="call shardc.array with the same value on every rank, or give each rank its part of the value with "
                "shardc.array_from_process_local_data",
            )


def _digest(part: NDArray[Any]) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data, digest_size=16).digest()
