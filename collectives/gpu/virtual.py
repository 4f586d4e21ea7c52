"""Collectives of groups whose devices all share this process's GPU: kernels over their memory, and copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shardc.collectives.call.call import BufferRef, CollectiveCall
from shardc.collectives.call.membership import check_call, connected_processes
from shardc.collectives.gpu.kernels import MOST_MEMBERS, GroupKernel
from shardc.collectives.gpu.places import BufferPlaces
from shardc.native.gpu.images import gpu_image, new_gpu_module
from shardc.native.gpu.runtime import Kernel, Runtime, Stream

__all__ = ["VirtualCollectives", "fits_one_gpu"]


def fits_one_gpu(call: CollectiveCall, members: Sequence[Sequence[int]]) -> bool:
    """Whether kernels have parameters for groups of this size. A collective-permute always fits."""
    return call.op == "collective-permute" or len(members[0]) <= MOST_MEMBERS


@dataclass(frozen=True, slots=True)
class _CollectiveLaunch:
    """The kernel of one operand, and where it and its result lie on every member."""

    kernel: Kernel
    how: GroupKernel
    operand: BufferRef
    result: BufferRef


@dataclass(frozen=True, slots=True)
class _DeviceGroup:
    """A replica group; ``devices`` by position."""

    runtime: Runtime
    devices: tuple[int, ...]
    launches: tuple[_CollectiveLaunch, ...]

    def start(self, places: Mapping[int, BufferPlaces], stream: Stream) -> None:
        members = [places[d] for d in self.devices]
        for one in self.launches:
            pointers = [p.address(ref) for ref in (one.operand, one.result) for p in members]
            self.runtime.launch(one.kernel, one.how.shape, pointers, 0, stream)


@dataclass(frozen=True, slots=True)
class _Chain:
    """Devices of a permute that send to each other: ``pairs`` of (source or None, target)."""

    runtime: Runtime
    devices: tuple[int, ...]
    pairs: tuple[tuple[int | None, int], ...]
    operands: tuple[tuple[BufferRef, BufferRef], ...]

    def start(self, places: Mapping[int, BufferPlaces], stream: Stream) -> None:
        for source, target in self.pairs:
            for operand, result in self.operands:
                to = places[target].address(result)
                if source is None:
                    self.runtime.fill(to, 0, result.nbytes, stream)
                else:
                    self.runtime.copy(to, places[source].address(operand), result.nbytes, stream)


class VirtualCollectives:
    """Does ``calls`` among ``devices`` of one GPU, whose groups are whole: all members of a group with one of
    ``devices`` are among them. Their kernels are made here."""

    def __init__(
        self, runtime: Runtime, calls: Sequence[CollectiveCall], num_devices: int, devices: Sequence[int]
    ) -> None:
        self._runtime, self._devices = runtime, frozenset(devices)
        members = {c.index: check_call(c, num_devices) for c in calls}
        kernels = self._load_kernels([k for c in calls for k in _kernels(c, members[c.index]).values()])
        self._groups: dict[int, tuple[_DeviceGroup, ...] | tuple[_Chain, ...]] = {}
        for call in calls:
            mine = members[call.index]
            if call.op == "collective-permute":
                self._groups[call.index] = tuple(self._chains(call, mine, num_devices))
            else:
                self._groups[call.index] = tuple(self._whole(call, mine, kernels))

    def _load_kernels(self, wanted: Sequence[GroupKernel]) -> dict[GroupKernel, Kernel]:
        distinct = list(dict.fromkeys(wanted))
        if not distinct:
            return {}
        module = new_gpu_module("collectives", self._runtime.target)
        for how in distinct:
            how.emit(module, self._runtime.target)
        loaded = self._runtime.load([gpu_image(module, self._runtime.target)])
        return {how: loaded.kernel(how.symbol) for how in distinct}

    def groups(self, index: int) -> Sequence[_DeviceGroup] | Sequence[_Chain]:
        """See `shardc.collectives.gpu.group_work.DeviceCollectives`."""
        return self._groups[index]

    def _whole(
        self, call: CollectiveCall, members: Sequence[Sequence[int]], kernels: Mapping[GroupKernel, Kernel]
    ) -> list[_DeviceGroup]:
        found = _kernels(call, members)
        launches = tuple(
            _CollectiveLaunch(kernels[how], how, call.operands[n].operand, call.operands[n].result)
            for n, how in found.items()
        )
        mine = [tuple(group) for group in members if group[0] in self._devices]
        return [_DeviceGroup(self._runtime, group, launches) for group in mine]

    def _chains(self, call: CollectiveCall, pairs: Sequence[Sequence[int]], num_devices: int) -> list[_Chain]:
        source = {target: begin for begin, target in pairs}
        operands = tuple((o.operand, o.result) for o in call.operands if o.result.nbytes)
        together: dict[int, list[int]] = {}
        for device, first in enumerate(connected_processes(pairs, np.arange(num_devices), num_devices)):
            together.setdefault(first, []).append(device)
        return [
            _Chain(self._runtime, tuple(chain), tuple((source.get(d), d) for d in chain), operands)
            for chain in together.values()
            if chain[0] in self._devices
        ]


def _kernels(call: CollectiveCall, members: Sequence[Sequence[int]]) -> dict[int, GroupKernel]:
    """The kernel of each operand of ``call`` that has elements, by its number."""
    if call.op == "collective-permute":
        return {}
    size = len(members[0])
    cuts = size if call.op in ("reduce-scatter", "all-to-all") else 1
    return {
        n: GroupKernel(call.op, size, call.reduction, o.dtype, o.count // cuts, o.operand == o.result)
        for n, o in enumerate(call.operands)
        if o.count
    }
