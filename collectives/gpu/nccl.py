"""Collectives between the GPUs of a job's processes, one device each, by NCCL: a communicator per replica group.

NCCL adds and multiplies; what it does not know (other element types, bits, and greatest and least numbers, where its
own lose NaN), and what is too short to be worth a ring, is gathered and then reduced here by the same kernel and the
same tree as on one GPU. Sums that NCCL makes are in its order, and of 16-bit floats rounded at every step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shardc.collectives.call.call import CollectiveCall, CollectiveOperand
from shardc.collectives.call.membership import check_call, connected_processes
from shardc.collectives.call.transport import Transport
from shardc.collectives.gpu.kernels import GroupKernel
from shardc.collectives.gpu.places import BufferPlaces
from shardc.native.gpu.cuda.nccl import Communicator, new_unique_id, together
from shardc.native.gpu.images import gpu_image, new_gpu_module
from shardc.native.gpu.runtime import Kernel, Memory, Runtime, Stream

__all__ = ["NcclCollectives", "nccl_reduces"]

#: Element types that NCCL adds and multiplies.
_TYPES = frozenset({"s8", "u8", "s32", "u32", "s64", "u64", "f16", "bf16", "f32", "f64"})
#: Bytes of an operand from which on a reduction is NCCL's.
_LONG = 64 << 10


def nccl_reduces(call: CollectiveCall, operand: CollectiveOperand) -> bool:
    """Whether NCCL itself computes this sum or product."""
    plain = call.reduction in ("add", "multiply") and operand.dtype.name in _TYPES
    return plain and operand.operand.nbytes >= _LONG


@dataclass(frozen=True, slots=True)
class _Own:
    """A reduction that is made here: of what all ``members`` sent, in ``memory`` one after another."""

    kernel: Kernel
    how: GroupKernel
    memory: Memory
    stride: int


@dataclass(frozen=True, slots=True)
class _NcclGroup:
    """This process's part in a replica group: at ``position``, over ``communicator``."""

    runtime: Runtime
    call: CollectiveCall
    communicator: Communicator
    members: int
    devices: tuple[int, ...]
    own: Mapping[int, _Own]

    def start(self, places: Mapping[int, BufferPlaces], stream: Stream) -> None:
        mine = places[self.devices[0]]
        operands = [(n, o) for n, o in enumerate(self.call.operands) if o.count]
        with together(self.communicator):
            for n, o in operands:
                self._send(n, o, mine.address(o.operand), mine.address(o.result), stream)
        for n, o in operands:
            if n in self.own:
                own = self.own[n]
                sent = [own.memory.address + own.stride * k for k in range(self.members)]
                self.runtime.launch(own.kernel, own.how.shape, [*sent, mine.address(o.result)], 0, stream)

    def _send(self, n: int, o: CollectiveOperand, source: int, to: int, stream: Stream) -> None:
        comm, op, nbytes = self.communicator, self.call.op, o.operand.nbytes
        if n in self.own:
            own = self.own[n]
            chunked = op == "reduce-scatter"
            step = nbytes // self.members if chunked else 0
            size = nbytes // self.members if chunked else nbytes
            for peer in range(self.members):
                comm.send(source + peer * step, size, peer, stream)
                comm.receive(own.memory.address + peer * own.stride, size, peer, stream)
        elif op == "all-reduce":
            comm.all_reduce(source, to, o.count, o.dtype.name, self.call.reduction, stream)
        elif op == "reduce-scatter":
            comm.reduce_scatter(source, to, o.count // self.members, o.dtype.name, self.call.reduction, stream)
        elif op == "all-gather":
            comm.all_gather(source, to, nbytes, stream)
        else:
            size = nbytes // self.members
            for peer in range(self.members):
                comm.send(source + peer * size, size, peer, stream)
                comm.receive(to + peer * size, size, peer, stream)


@dataclass(frozen=True, slots=True)
class _Neighbours:
    """This process's part in a permute: ``source`` and ``target`` are ranks of ``communicator``."""

    runtime: Runtime
    call: CollectiveCall
    communicator: Communicator
    devices: tuple[int, ...]
    source: int | None
    target: int | None

    def start(self, places: Mapping[int, BufferPlaces], stream: Stream) -> None:
        mine = places[self.devices[0]]
        operands = [o for o in self.call.operands if o.count]
        with together(self.communicator):
            for o in operands:
                if self.target is not None:
                    self.communicator.send(mine.address(o.operand), o.operand.nbytes, self.target, stream)
                if self.source is not None:
                    self.communicator.receive(mine.address(o.result), o.result.nbytes, self.source, stream)
        if self.source is None:
            for o in operands:
                self.runtime.fill(mine.address(o.result), 0, o.result.nbytes, stream)


class NcclCollectives:
    """Does ``calls`` over the processes of ``transport``, which have one device each. All of them make it together."""

    def __init__(
        self, runtime: Runtime, calls: Sequence[CollectiveCall], num_devices: int, transport: Transport
    ) -> None:
        self._runtime, self._transport = runtime, transport
        self._me = transport.process_index
        self._communicators: dict[tuple[tuple[int, ...], ...], Communicator] = {}
        members = {c.index: check_call(c, num_devices) for c in calls}
        kernels = self._load_kernels([k for c in calls for k in _own_kernels(c, members[c.index]).values()])
        self._groups: dict[int, tuple[_NcclGroup | _Neighbours, ...]] = {}
        for call in calls:
            found = members[call.index]
            if call.op == "collective-permute":
                self._groups[call.index] = (self._neighbours(call, found, num_devices),)
            else:
                self._groups[call.index] = (self._group(call, found, kernels),)

    def groups(self, index: int) -> Sequence[_NcclGroup | _Neighbours]:
        """See `shardc.collectives.gpu.group_work.DeviceCollectives`."""
        return self._groups[index]

    def _group(
        self, call: CollectiveCall, members: Sequence[Sequence[int]], kernels: Mapping[GroupKernel, Kernel]
    ) -> _NcclGroup:
        groups = tuple(tuple(group) for group in members)
        size = len(groups[0])
        own = {}
        for n, how in _own_kernels(call, members).items():
            stride = -(-how.nbytes // 256) * 256
            own[n] = _Own(kernels[how], how, self._runtime.allocate(stride * size), stride)
        return _NcclGroup(self._runtime, call, self._communicator(groups), size, (self._me,), own)

    def _neighbours(self, call: CollectiveCall, pairs: Sequence[Sequence[int]], num_devices: int) -> _Neighbours:
        first = connected_processes(pairs, np.arange(num_devices), num_devices)
        chains: dict[int, list[int]] = {}
        for device, number in enumerate(first):
            chains.setdefault(number, []).append(device)
        communicator = self._communicator(tuple(tuple(c) for c in chains.values()))
        rank = {d: n for n, d in enumerate(chains[first[self._me]])}
        source = next((rank[a] for a, b in pairs if b == self._me), None)
        target = next((rank[b] for a, b in pairs if a == self._me), None)
        return _Neighbours(self._runtime, call, communicator, (self._me,), source, target)

    def _communicator(self, groups: tuple[tuple[int, ...], ...]) -> Communicator:
        """Of the one of ``groups`` that this process is in; the same for all collectives over the same groups."""
        if groups not in self._communicators:
            mine = next(group for group in groups if self._me in group)
            made = new_unique_id() if mine[0] == self._me else b""
            names = self._transport.exchange_objects(made)
            position = mine.index(self._me)
            self._communicators[groups] = Communicator(self._runtime, names[mine[0]], len(mine), position)
        return self._communicators[groups]

    def _load_kernels(self, wanted: Sequence[GroupKernel]) -> dict[GroupKernel, Kernel]:
        distinct = list(dict.fromkeys(wanted))
        if not distinct:
            return {}
        module = new_gpu_module("reductions", self._runtime.target)
        for how in distinct:
            how.emit(module, self._runtime.target)
        loaded = self._runtime.load([gpu_image(module, self._runtime.target)])
        return {how: loaded.kernel(how.symbol) for how in distinct}


def _own_kernels(call: CollectiveCall, members: Sequence[Sequence[int]]) -> dict[int, GroupKernel]:
    """The reductions that are made here, by operand."""
    if call.op not in ("all-reduce", "reduce-scatter"):
        return {}
    size = len(members[0])
    cuts = size if call.op == "reduce-scatter" else 1
    return {
        n: GroupKernel("reduce", size, call.reduction, o.dtype, o.count // cuts)
        for n, o in enumerate(call.operands)
        if o.count and not nccl_reduces(call, o)
    }
