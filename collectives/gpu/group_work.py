"""The protocol between a GPU collective and who runs a step: work by groups of devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from shardc.collectives.gpu.places import BufferPlaces
from shardc.native.gpu.runtime import Stream

__all__ = ["DeviceCollectives", "GroupWork"]


class GroupWork(Protocol):
    """A collective of one group, as far as it concerns this process."""

    @property
    def devices(self) -> tuple[int, ...]:
        """This process's devices in the group: all of them have come before anything is put into the stream."""
        ...

    def start(self, places: Mapping[int, BufferPlaces], stream: Stream) -> None:
        """Put the work into ``stream``; ``places`` by device."""
        ...


class DeviceCollectives(Protocol):
    """Collectives that are done on GPUs, without the host."""

    def groups(self, index: int) -> Sequence[GroupWork]:
        """The work of collective ``index`` for the groups with devices of this process."""
        ...
