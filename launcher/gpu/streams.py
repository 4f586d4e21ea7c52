"""Putting the work of a step into streams: one for each device, and one beside it for collectives under way.

Everything begins and ends in the context's main stream. Collectives wait for all members of a group, and these for
them, by events.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from shardc.collectives.call.call import BufferRef, CollectiveCall
from shardc.collectives.gpu.group_work import DeviceCollectives, GroupWork
from shardc.collectives.gpu.places import BufferPlaces
from shardc.compiler.gpu_program import (
    AwaitCollective,
    CheckStep,
    CopyStep,
    FillStep,
    GpuStep,
    LaunchStep,
    ProductStep,
    StartCollective,
)
from shardc.hlo.errors import RunError
from shardc.launcher.gpu.checks import Checks
from shardc.launcher.gpu.memory import GpuContext
from shardc.launcher.gpu.timed import Timed
from shardc.native.gpu.runtime import DeviceEvent, Kernel, Runtime, Stream

__all__ = ["StepCode", "Streams"]


@dataclass(frozen=True)
class StepCode:
    """What steps name: kernels by symbol, collectives by index and who does them, library products."""

    kernels: Mapping[str, Kernel]
    calls: Mapping[int, CollectiveCall]
    ways: Mapping[int, DeviceCollectives]
    checks: Checks | None
    products: Any = None
    #: Where what steps take is recorded, in a program compiled for profiling.
    timed: Timed | None = None


@dataclass(frozen=True, slots=True)
class _Lane:
    """A stream, and the event that marks how far it is."""

    stream: Stream
    event: DeviceEvent


@dataclass
class Streams:
    """Puts steps into streams for the devices whose ``places`` are given."""

    context: GpuContext
    code: StepCode
    places: Mapping[int, BufferPlaces]
    _lanes: dict[int, _Lane] = field(default_factory=dict)
    _beside: dict[int, _Lane] = field(default_factory=dict)
    #: Groups' work under way, by collective: what their devices have to wait for.
    _started: dict[int, list[tuple[GroupWork, DeviceEvent]]] = field(default_factory=dict)
    _done: dict[tuple[int, int], DeviceEvent] = field(default_factory=dict)
    _used: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        runtime, count = self.context.runtime, len(self.places)
        asynchronous = any(c.asynchronous for c in self.code.calls.values())
        others = self.context.streams(2 * count - 1 if asynchronous else count - 1)
        self._lanes = _lanes(runtime, self.places, [self.context.main, *others])
        if asynchronous:
            self._beside = _lanes(runtime, self.places, others[count - 1 :])

    @property
    def all(self) -> list[Stream]:
        """Every stream, the main one first."""
        return [lane.stream for lane in (*self._lanes.values(), *self._beside.values())]

    @property
    def _runtime(self) -> Runtime:
        return self.context.runtime

    def put(self, steps: Sequence[GpuStep], devices: Sequence[int]) -> None:
        """All ``steps`` for ``devices``, behind what is in the main stream; what comes there next is behind them."""
        lanes = [self._lanes[d] for d in devices]
        main = self._lanes[next(iter(self._lanes))]
        self._follow([main], [lane for lane in lanes if lane is not main])
        for step in steps:
            if self.code.timed is None:
                _PUT[type(step)](self, step, devices)
            else:
                self._put_timed(self.code.timed, step, devices)
        beside = [self._beside[d] for d in sorted(self._used)]
        self._used.clear()
        self._started.clear()
        self._follow([lane for lane in (*lanes, *beside) if lane is not main], [main])

    def _put_timed(self, timed: Timed, step: GpuStep, devices: Sequence[int]) -> None:
        """Device by device where they do not need each other."""
        together = isinstance(step, StartCollective | AwaitCollective)
        for some in [tuple(devices)] if together else [(d,) for d in devices]:
            with ExitStack() as spans:
                for d in some:
                    spans.enter_context(timed.around(step, d, self._lanes[d].stream))
                _PUT[type(step)](self, step, some)

    def _follow(self, first: Sequence[_Lane], then: Sequence[_Lane]) -> None:
        """What comes into ``then`` waits for what is in ``first``."""
        if not then:
            return
        for lane in first:
            self._runtime.record(lane.event, lane.stream)
            for other in then:
                if other is not lane:
                    self._runtime.wait(lane.event, other.stream)

    def _launch(self, step: LaunchStep, devices: Sequence[int]) -> None:
        kernel = self.code.kernels[step.symbol]
        for d in devices:
            places = self.places[d]
            pointers = [places.address(ref) for ref in step.places]
            self._runtime.launch(kernel, step.shape, pointers, d, self._lanes[d].stream)

    def _fill(self, step: FillStep, devices: Sequence[int]) -> None:
        for d in devices:
            address = self.places[d].address(step.place)
            self._runtime.fill(address, step.byte, step.place.nbytes, self._lanes[d].stream)

    def _copy(self, step: CopyStep, devices: Sequence[int]) -> None:
        for d in devices:
            source, target = (self.places[d].address(ref) for ref in (step.source, step.target))
            if source != target and step.target.nbytes:
                self._runtime.copy(target, source, step.target.nbytes, self._lanes[d].stream)

    def _product(self, step: ProductStep, devices: Sequence[int]) -> None:
        for d in devices:
            a, b, bias, out, workspace = (
                0 if ref is None else self.places[d].address(ref)
                for ref in (step.a, step.b, step.bias, step.d, step.workspace)
            )
            self.code.products.run(step.product, a, b, bias, out, workspace, self._lanes[d].stream, step.name)

    def _check(self, step: CheckStep, devices: Sequence[int]) -> None:
        assert self.code.checks is not None
        for d in devices:
            self.code.checks.put(step.index, d, self.places[d].address(step.predicate), self._lanes[d].stream)

    def _start(self, step: StartCollective, devices: Sequence[int]) -> None:
        call = self.code.calls[step.index]
        for group in self._complete(call, devices):
            lanes = [self._lanes[d] for d in group.devices]
            if call.asynchronous:
                first = group.devices[0]
                lead = self._beside[first]
                self._used.add(first)
            else:
                lead = lanes[0]
            self._follow([lane for lane in lanes if lane is not lead], [lead])
            group.start(self.places, lead.stream)
            if not call.asynchronous:
                self._follow([lead], lanes[1:])
                continue
            done = self._done.setdefault((call.index, first), self._runtime.event())
            self._runtime.record(done, lead.stream)
            self._started.setdefault(call.index, []).append((group, done))

    def _await(self, step: AwaitCollective, devices: Sequence[int]) -> None:
        """Wait for what was started among these steps; all that was started before is done."""
        left = []
        for group, done in self._started.pop(step.index, ()):
            if not set(group.devices) <= set(devices):
                left.append((group, done))
                continue
            for d in group.devices:
                self._runtime.wait(done, self._lanes[d].stream)
        if left:
            self._started[step.index] = left

    def _complete(self, call: CollectiveCall, devices: Collection[int]) -> list[GroupWork]:
        """The groups of ``call`` all of whose devices are here among ``devices``; RunError for a part of one."""
        here = set(devices)
        found = []
        for group in self.code.ways[call.index].groups(call.index):
            members = set(group.devices)
            if members <= here:
                found.append(group)
            elif members & here:
                raise diverged(call, sorted(members & here), sorted(members - here))
        return found


def _lanes(runtime: Runtime, devices: Collection[int], streams: Sequence[Stream]) -> dict[int, _Lane]:
    return {d: _Lane(stream, runtime.event()) for d, stream in zip(devices, streams, strict=False)}


def diverged(call: CollectiveCall, came: Sequence[int], stayed: Sequence[int]) -> RunError:
    """Devices ``came`` reached a collective, devices ``stayed`` took another branch."""
    return RunError(
        f"devices took different branches: {_list(came)} reached {call.op} %{call.name}, but {_list(stayed)} did not",
        where=call.source or None,
        fix="a condition around collectives must have the same value on all devices of a group",
    )


def _list(devices: Sequence[int]) -> str:
    return ("device " if len(devices) == 1 else "devices ") + ", ".join(map(str, devices))


def refs_of(step: GpuStep, calls: Mapping[int, CollectiveCall]) -> list[BufferRef]:
    """The places that a step names."""
    match step:
        case LaunchStep():
            return list(step.places)
        case FillStep():
            return [step.place]
        case CopyStep():
            return [step.source, step.target]
        case ProductStep():
            return [r for r in (step.a, step.b, step.bias, step.d, step.workspace) if r is not None]
        case CheckStep():
            return [step.predicate]
        case StartCollective() | AwaitCollective():
            return [r for o in calls[step.index].operands for r in (o.operand, o.result)]
        case _:
            return []


_PUT: Mapping[type, Callable[[Streams, Any, Sequence[int]], None]] = {
    LaunchStep: Streams._launch,
    FillStep: Streams._fill,
    CopyStep: Streams._copy,
    ProductStep: Streams._product,
    CheckStep: Streams._check,
    StartCollective: Streams._start,
    AwaitCollective: Streams._await,
}
