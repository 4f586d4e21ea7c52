"""What the steps of a program compiled for profiling take on a GPU: an event before and one behind each, by device.

Work that is timed is put into streams step by step, never as a graph. Times of asynchronous collectives are those that
the device stood still for them: at the start next to nothing, at the await what was left to wait for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from shardc.compiler.gpu_program import GpuProgram, GpuStep, leaf_steps
from shardc.compiler.profile import ProfilePlan, ProfileRecord
from shardc.native.gpu.runtime import DeviceEvent, Runtime, Stream

__all__ = ["Timed"]


@dataclass(frozen=True, slots=True)
class _Span:
    """One execution of a step; ``counts`` where it is the first of the steps that its site has."""

    site: int
    counts: bool
    begin: DeviceEvent
    end: DeviceEvent


class Timed:
    """Times the steps of ``program``, whose sites ``plan`` has, on ``devices``."""

    def __init__(self, runtime: Runtime, program: GpuProgram, plan: ProfilePlan, devices: Sequence[int]) -> None:
        self._runtime, self._plan = runtime, plan
        self._sites: dict[int, tuple[int, bool]] = {}
        seen = {-1}
        for step, site in zip(leaf_steps(program.steps), program.sites, strict=True):
            self._sites[id(step)] = (site, site not in seen)
            seen.add(site)
        self._spans: dict[int, list[_Span]] = {d: [] for d in devices}
        self._dropped = dict.fromkeys(devices, 0)
        self._spare: list[DeviceEvent] = []
        self._base: DeviceEvent | None = None
        self._began = 0

    def clear(self, main: Stream) -> None:
        """Forget what was recorded: a step begins in ``main``."""
        for device, spans in self._spans.items():
            self._spare += [event for span in spans for event in (span.begin, span.end)]
            spans.clear()
            self._dropped[device] = 0
        self._runtime.synchronize()
        self._base = self._base or self._runtime.event(timed=True)
        self._runtime.record(self._base, main)
        self._began = time.monotonic_ns()

    @contextmanager
    def around(self, step: GpuStep, device: int, stream: Stream) -> Iterator[None]:
        """The execution of ``step`` for ``device``, which what is put into ``stream`` meanwhile does or waits for."""
        site, counts = self._sites[id(step)]
        spans = self._spans[device]
        if site < 0 or self._base is None or len(spans) == self._plan.events:
            self._dropped[device] += site >= 0 and self._base is not None
            yield
            return
        begin, end = self._event(), self._event()
        self._runtime.record(begin, stream)
        yield
        self._runtime.record(end, stream)
        spans.append(_Span(site, counts, begin, end))

    def _event(self) -> DeviceEvent:
        return self._spare.pop() if self._spare else self._runtime.event(timed=True)

    def records(self) -> dict[int, ProfileRecord]:
        """What was recorded since `clear`, when it is done; times are of the monotonic clock, in nanoseconds."""
        self._runtime.synchronize()
        return {device: self._record(device) for device in self._spans}

    def _record(self, device: int) -> ProfileRecord:
        spans, base, sites = self._spans[device], self._base, len(self._plan.sites)
        calls, spent = np.zeros(sites, np.int64), np.zeros(sites, np.int64)
        events = np.zeros((len(spans), 3), np.int64)
        for row, span in zip(events, spans, strict=True):
            assert base is not None
            begin, end = (round(self._runtime.elapsed(base, e) * 1e9) for e in (span.begin, span.end))
            row[:] = span.site, self._began + begin, self._began + end
            calls[span.site] += span.counts
            spent[span.site] += end - begin
        return ProfileRecord(calls, spent, events, self._dropped[device])
