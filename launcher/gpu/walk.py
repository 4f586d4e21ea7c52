"""A step's way through its nodes, for all devices of this process together.

Devices may take different ways: a loop goes on for those whose predicate holds, a branch is taken by those that chose
it. Collectives in there are done for the groups all of whose members came along. What goes through the host's memory is
left to the transport: the walk stops there, as a native step does, and is resumed when it is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext

import numpy as np

from shardc.collectives.call.call import BufferRef
from shardc.collectives.gpu.places import BufferPlaces
from shardc.compiler.executable import WAIT
from shardc.compiler.gpu_program import GpuStep
from shardc.launcher.gpu.checks import Checks
from shardc.launcher.gpu.graphs import GraphCache
from shardc.launcher.gpu.host_steps import HostSteps
from shardc.launcher.gpu.memory import GpuContext
from shardc.launcher.gpu.plan import Branches, ExchangeNode, HostNode, LoopNode, Node, Segment
from shardc.launcher.gpu.staged import Staged
from shardc.launcher.gpu.streams import diverged
from shardc.launcher.gpu.timed import Timed

__all__ = ["Walk"]

_Devices = tuple[int, ...]


class Walk:
    """Walks nodes on the devices of ``places``."""

    def __init__(
        self,
        context: GpuContext,
        graphs: GraphCache,
        places: Mapping[int, BufferPlaces],
        hosts: HostSteps,
        checks: Checks | None,
        staged: Staged | None,
        timed: Timed | None = None,
    ) -> None:
        self._context, self._graphs, self._places = context, graphs, places
        self._hosts, self._checks, self._staged, self._timed = hosts, checks, staged, timed
        self._everybody = tuple(places)

    def run(self, nodes: Sequence[Node]) -> Iterator[int]:
        """The step, from stop to stop at what the transport has to do (`shardc.compiler.executable`)."""
        yield from self._run(nodes, self._everybody)
        self._raise_false_check()

    def _run(self, nodes: Sequence[Node], devices: _Devices) -> Iterator[int]:
        for node in nodes:
            match node:
                case Segment():
                    self._graphs.run(node, devices)
                case LoopNode():
                    yield from self._loop(node, devices)
                case Branches():
                    for branch, taken in zip(node.branches, self._chosen(node, devices), strict=True):
                        if taken:
                            yield from self._run(branch, taken)
                case HostNode():
                    for d in devices:
                        with self._time(node.step, d):
                            self._hosts.run(node.step, d, self._places[d])
                case ExchangeNode():
                    yield from self._exchange(node, devices)

    def _loop(self, loop: LoopNode, devices: _Devices) -> Iterator[int]:
        if loop.predicate is None:
            for _ in range(loop.trips):
                yield from self._run(loop.body, devices)
            return
        while devices:
            yield from self._run(loop.condition, devices)
            values = self._read(loop.predicate, devices, np.uint8)
            self._raise_false_check()
            devices = tuple(d for d, value in zip(devices, values, strict=True) if value)
            if devices:
                yield from self._run(loop.body, devices)

    def _chosen(self, node: Branches, devices: _Devices) -> list[_Devices]:
        """The devices that take each branch."""
        taken: list[list[int]] = [[] for _ in node.branches]
        values = self._read(node.selector, devices, np.uint8 if node.logical else np.int32)
        self._raise_false_check()
        for device, value in zip(devices, values, strict=True):
            last = len(taken) - 1
            number = int(not value) if node.logical else value if 0 <= value <= last else last
            taken[number].append(device)
        return [tuple(t) for t in taken]

    def _exchange(self, node: ExchangeNode, devices: _Devices) -> Iterator[int]:
        assert self._staged is not None
        if devices != self._everybody:
            stayed = [d for d in self._everybody if d not in devices]
            raise diverged(self._staged.call(node.index), devices, stayed)
        with ExitStack() as spans:
            for d in devices:
                spans.enter_context(self._time(node.step, d))
            if node.done:
                yield node.index | WAIT
            else:
                self._staged.fetch(node.index)
                yield node.index
            if node.done or not self._staged.call(node.index).asynchronous:
                self._staged.deliver(node.index)

    def _time(self, step: GpuStep, device: int) -> AbstractContextManager[None]:
        """Record what the host does in ``step`` for ``device``, if that is wanted."""
        return nullcontext() if self._timed is None else self._timed.around(step, device, self._context.main)

    def _read(self, ref: BufferRef, devices: _Devices, dtype: type[np.generic]) -> list[int]:
        """A number of each device, when all that was started is done."""
        blocks = [np.empty(np.dtype(dtype).itemsize, np.uint8) for _ in devices]
        self._context.download([(self._places[d].address(ref), b) for d, b in zip(devices, blocks, strict=True)])
        return [int(b.view(dtype)[0]) for b in blocks]

    def _raise_false_check(self) -> None:
        false = None if self._checks is None else self._checks.look()
        if false is not None:
            raise false
