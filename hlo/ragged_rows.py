"""What the tables of a ragged exchange must fulfil, and what is told where they do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardc.hlo.errors import RunError

__all__ = ["RaggedGroup"]

Table = NDArray[np.integer]


@dataclass(frozen=True, slots=True)
class RaggedGroup:
    """The tables of a group's ``devices``, by position, with g * k integers each (`ragged-all-to-all` in HLO).

    Starts may be unknown (None). ``data_rows`` and ``output_rows`` are the rows that each device has. ``name`` says how
    messages call a device.

    Example: two devices that send each other one row ask
    ``RaggedGroup((0, 1), [t(0, 0)] * 2, [t(1, 1)] * 2, [t(0, 0), t(1, 1)], [t(1, 1)] * 2, 1, 2).fault()``, which is
    None.
    """

    devices: Sequence[int]
    starts: Sequence[Table | None]
    sizes: Sequence[Table]
    targets: Sequence[Table]
    received: Sequence[Table]
    data_rows: int
    output_rows: int
    name: Callable[[int], str] = "device {}".format

    def fault(self, where: str | None = None) -> RunError | None:
        """The first thing that is wrong: rows outside of the data or the output, a received size that is not the sent
        one, or rows that several updates write. O(n log n) for n updates."""
        for position in range(len(self.devices)):
            found = self._outside(position)
            if found is not None:
                return RunError(f"ragged-all-to-all: {found[0]}", where=where, fix=found[1])
        for position in range(len(self.devices)):
            found = self._not_as_told(position) or self._written_twice(position)
            if found is not None:
                return RunError(f"ragged-all-to-all: {found[0]}", where=where, fix=found[1])
        return None

    @property
    def _per_peer(self) -> int:
        return len(self.sizes[0]) // len(self.devices)

    def _outside(self, position: int) -> tuple[str, str] | None:
        """A sender's rows that are not there, or have no place at the receiver."""
        known = self.starts[position]
        for u, (size, target) in enumerate(zip(self.sizes[position], self.targets[position], strict=True)):
            size, target = int(size), int(target)
            start = 0 if known is None else int(known[u])
            peer = self.name(self.devices[u // self._per_peer])
            place = "" if known is None else f" from row {start} of its data"
            what = f"{self.name(self.devices[position])} sends {size} rows{place} to {peer}"
            if size < 0:
                return what, "send_sizes must not be negative"
            if known is not None and not 0 <= start <= self.data_rows - size:
                return (
                    f"{what}, but its data has {self.data_rows} rows",
                    "input_offsets + send_sizes must lie within the rows of the operand",
                )
            if not 0 <= target <= self.output_rows - size:
                return (
                    f"{what}, to row {target} of an output that has {self.output_rows}",
                    "make the output large enough for all rows that may arrive, or drop rows before sending",
                )
        return None

    def _incoming(self, position: int, tables: Sequence[Table]) -> Table:
        k = self._per_peer
        return np.concatenate([t[position * k : (position + 1) * k] for t in tables]).astype(np.int64)

    def _not_as_told(self, position: int) -> tuple[str, str] | None:
        sent, told = self._incoming(position, self.sizes), self.received[position]
        wrong = np.flatnonzero(sent != told)
        if not wrong.size:
            return None
        u = int(wrong[0])
        sender = self.name(self.devices[u // self._per_peer])
        return (
            f"{sender} sends {sent[u]} rows to {self.name(self.devices[position])}, whose recv_sizes say {told[u]}",
            "recv_sizes must be the all-to-all of the senders' send_sizes",
        )

    def _written_twice(self, position: int) -> tuple[str, str] | None:
        sizes, targets = self._incoming(position, self.sizes), self._incoming(position, self.targets)
        used = np.flatnonzero(sizes)
        order = used[np.argsort(targets[used], kind="stable")]
        again = np.flatnonzero(targets[order][1:] < (targets + sizes)[order][:-1])
        if not again.size:
            return None
        first, second = (self.name(self.devices[int(u) // self._per_peer]) for u in order[again[0] : again[0] + 2])
        row = int(targets[order[again[0] + 1]])
        return (
            f"{first} and {second} both write row {row} of the output of {self.name(self.devices[position])}",
            "output_offsets must leave each sender rows of its own; in a gradient, each row may be sent only once",
        )
