"""The simulator's clock: one processor does a program in order, transfers go on beside it or wait in a queue.

Devices of a program do the same, so one is simulated. A loop is walked until an iteration leaves under way exactly what
was under way when it began: the ones behind it take the same time, however many they are, until one of those
transfers lands. So the cost of simulating depends on neither trips nor devices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from shardc.analysis.simulate.links import BusyLinks, Flight, SavedFlight
from shardc.analysis.simulate.simulated_step import PathStep, SimulatedEvent, Skipped
from shardc.analysis.simulate.timed import Timed, TimedBranches, TimedDone, TimedLoop, TimedStart, TimedWork

__all__ = ["StepClock", "Tally", "run_clock"]

#: A part of the critical path: what, of which work, in which loops.
_Part = tuple[str, int, tuple[str, ...]]
#: By part: seconds, and how often.
_Path = dict[_Part, tuple[float, int]]

#: Of an iteration's progress, what counts as rounding.
_NOTHING = 1e-9


@dataclass(slots=True)
class Tally:
    """Seconds of the processor by what it did, and by work how often it ran, was waited for, and was hidden."""

    compute: float = 0.0
    exposed: float = 0.0
    idle: float = 0.0
    overlapped: float = 0.0
    count: dict[int, int] = field(default_factory=dict)
    exposed_by: dict[int, float] = field(default_factory=dict)
    hidden_by: dict[int, float] = field(default_factory=dict)

    def add(self, other: Tally, times: int) -> None:
        self.compute += times * other.compute
        self.exposed += times * other.exposed
        self.idle += times * other.idle
        self.overlapped += times * other.overlapped
        for work, n in other.count.items():
            self.count[work] = self.count.get(work, 0) + times * n
        for mine, theirs in ((self.exposed_by, other.exposed_by), (self.hidden_by, other.hidden_by)):
            for work, seconds in theirs.items():
                mine[work] = mine.get(work, 0.0) + times * seconds


@dataclass(slots=True)
class _TimedBlock:
    """What a block's steps did, for the way back from its end: (path, transfer that was waited for)."""

    acts: list[tuple[_Path, Flight | None]] = field(default_factory=list)
    #: By transfer, how many acts there were when it began.
    begun: dict[Flight, int] = field(default_factory=dict)


@dataclass(slots=True)
class StepClock:
    """The state of a run. ``marks`` are (seconds, position) of every step in the iterations that ``events`` lists."""

    now: float = 0.0
    links: BusyLinks = field(default_factory=BusyLinks)
    tally: Tally = field(default_factory=Tally)
    events: list[SimulatedEvent] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    marks: list[tuple[float, int]] = field(default_factory=list)
    loops: tuple[tuple[str, int], ...] = ()
    critical_path: tuple[PathStep, ...] = ()
    #: By work, the transfer that began last; those that have landed and nobody has waited for yet.
    newest: dict[int, Flight] = field(default_factory=dict)
    landed: set[Flight] = field(default_factory=set)

    # -- steps ------------------------------------------------------------------------------------------------

    def block(self, steps: Sequence[Timed]) -> _Path:
        """Run ``steps``; returns their critical path."""
        done = _TimedBlock()
        for step in steps:
            if isinstance(step, TimedWork):
                self._task(step, done)
            elif isinstance(step, TimedStart):
                self._start(step, done)
            elif isinstance(step, TimedDone):
                self.marks.append((self.now, step.position))
                self._wait(self.newest.pop(step.work), done)
                self._overhead(step.work, step.overhead, done)
            elif isinstance(step, TimedLoop):
                done.acts.append((self._repeat(step), None))
            else:
                done.acts.append((self._choice(step), None))
        return _way_back(done)

    def _task(self, task: TimedWork, done: _TimedBlock) -> None:
        self.marks.append((self.now, task.position))
        self.tally.count[task.work] = self.tally.count.get(task.work, 0) + 1
        if not task.seconds:
            return
        self._event("compute", task.kind, task.work, self.now, task.seconds, self.loops)
        self.tally.compute += task.seconds
        self.tally.overlapped += self._pass(task.seconds)
        done.acts.append((self._part(task.kind, task.work, task.seconds), None))

    def _start(self, start: TimedStart, done: _TimedBlock) -> None:
        self.marks.append((self.now, start.position))
        self.tally.count[start.work] = self.tally.count.get(start.work, 0) + 1
        self._overhead(start.work, start.overhead, done)
        uses = {r: min(1.0, s / start.seconds) for r, s in start.loads.items() if s > 0} if start.seconds else {}
        flight = Flight(start.work, start.seconds, self.now, uses, start.seconds, self.loops)
        done.begun[flight] = len(done.acts)
        if start.seconds:
            self.links.start(flight)
        else:
            self.landed.add(flight)
        if start.waits:
            self._wait(flight, done)
        else:
            self.newest[start.work] = flight

    def _wait(self, flight: Flight, done: _TimedBlock) -> None:
        """The processor does nothing until ``flight`` has landed."""
        begin = self.now
        while flight not in self.landed:
            self._fly(self.links.next_landing(), waited=flight)
        self.landed.discard(flight)
        waited = self.now - begin
        if waited > 0:
            self.tally.exposed += waited
            exposed = self.tally.exposed_by
            exposed[flight.work] = exposed.get(flight.work, 0.0) + waited
            self._event("compute", "wait", flight.work, begin, waited, self.loops)
            done.acts.append(self._queue(flight, done))

    def _queue(self, flight: Flight, done: _TimedBlock) -> tuple[_Path, Flight]:
        """What ``flight``, which lands now, waited for in its queue, and the first of these, which waited for nothing
        that began in the same block."""
        parts: list[_Path] = []
        end = self.now
        while flight.behind in done.begun:
            begin = flight.begin + flight.queued
            parts.append(self._part("transfer", flight.work, end - begin))
            flight, end = flight.behind, begin
        path = self._part("transfer", flight.work, end - flight.begin)
        for part in reversed(parts):
            _add(path, part, 1)
        return path, flight

    def _overhead(self, work: int, seconds: float, done: _TimedBlock) -> None:
        if seconds:
            self.tally.idle += seconds
            self._pass(seconds)
            done.acts.append((self._part("overhead", work, seconds), None))

    def _choice(self, choice: TimedBranches) -> _Path:
        """The branch that takes longest, from where the clock stands."""
        begin, outer = _Moment.of(self), self.tally
        best: tuple[_Moment, Tally, _Path, _Lists] | None = None
        for steps in choice.branches:
            self.tally = Tally()
            path = self.block(steps)
            if best is None or self.now > best[0].now:
                best = (_Moment.of(self), self.tally, path, begin.written_since(self))
            begin.put(self)
        self.tally = outer
        if best is None:
            return {}
        moment, tally, path, lists = best
        moment.put(self)
        self.tally.add(tally, 1)
        self.events += lists[0]
        self.skipped += lists[1]
        self.marks += lists[2]
        return path

    # -- loops ------------------------------------------------------------------------------------------------

    def _repeat(self, loop: TimedLoop) -> _Path:
        outer, outer_tally = self.loops, self.tally
        path: _Path = {}
        left, iteration = loop.trips, 0
        while left:
            self.loops = (*outer, (loop.name, iteration))
            self.tally = Tally()
            before, begin = {f: f.left for f in self.links.flying}, self.now
            once = self.block((*loop.condition, *loop.body))
            left, iteration, seconds = left - 1, iteration + 1, self.now - begin
            same = self._repeated_iterations(before, left)
            if same:
                self.skipped.append(
                    Skipped(loop.name, iteration, iteration + same - 1, self.now, same * seconds, outer)
                )
                for f in self.links.flying:
                    f.left -= same * (before[f] - f.left)
                    f.queued += 0.0 if f.rate else same * seconds
                self.now += same * seconds
                left, iteration = left - same, iteration + same
            outer_tally.add(self.tally, 1 + same)
            _add(path, once, 1 + same)
        self.loops, self.tally = (*outer, (loop.name, iteration)), outer_tally
        _add(path, self.block(loop.condition), 1)
        self.loops = outer
        return path

    def _repeated_iterations(self, before: dict[Flight, float], most: int) -> int:
        """How many more iterations, ``most`` at most, go like the last one, at whose beginning ``before`` was under
        way: until the first of those lands."""
        flying = self.links.flying
        if flying != list(before):
            return 0
        for f in flying:
            drop = before[f] - f.left
            if drop > 0:
                most = min(most, max(0, math.floor(f.left / drop - _NOTHING)))
        return most

    # -- time -------------------------------------------------------------------------------------------------

    def _pass(self, seconds: float) -> float:
        """Let time pass; returns the seconds in which something was under way."""
        left = seconds
        while left > 0 and self.links.flying:
            step = min(left, self.links.next_landing())
            self._fly(step)
            left -= step
        self.now += left
        return seconds - left

    def _fly(self, seconds: float, waited: Flight | None = None) -> None:
        """Let time pass, at most until something lands; all that flies is hidden meanwhile but for ``waited`` and what
        that waits for."""
        hidden = self.tally.hidden_by
        for f in self.links.flying:
            if f.rate and f is not waited and (waited is None or not self.links.holds_up(f, waited)):
                hidden[f.work] = hidden.get(f.work, 0.0) + seconds
        self.now += seconds
        for f in self.links.fly(seconds):
            self.landed.add(f)
            for resource in f.uses or ("links",):
                begin = f.begin + f.queued
                self._event(resource, "transfer", f.work, begin, self.now - begin, f.loops, f.queued)

    def _event(
        self,
        engine: str,
        kind: str,
        work: int,
        begin: float,
        seconds: float,
        loops: tuple[tuple[str, int], ...],
        queued: float = 0.0,
    ) -> None:
        self.events.append(SimulatedEvent(engine, kind, work, begin, seconds, loops, queued))

    def _part(self, kind: str, work: int, seconds: float) -> _Path:
        return {(kind, work, tuple(name for name, _ in self.loops)): (seconds, 1)}


_Lists = tuple[list[SimulatedEvent], list[Skipped], list[tuple[float, int]]]


@dataclass(frozen=True, slots=True)
class _Moment:
    """The state of a clock, to try something and come back; ``lengths`` are those of its lists."""

    now: float
    flying: tuple[SavedFlight, ...]
    #: By work, the transfer that began last; those that have landed and nobody has waited for yet.
    newest: dict[int, Flight]
    landed: set[Flight]
    lengths: tuple[int, int, int]

    @classmethod
    def of(cls, clock: StepClock) -> _Moment:
        lengths = (len(clock.events), len(clock.skipped), len(clock.marks))
        return cls(clock.now, clock.links.saved(), dict(clock.newest), set(clock.landed), lengths)

    def written_since(self, clock: StepClock) -> _Lists:
        events, skipped, marks = self.lengths
        return clock.events[events:], clock.skipped[skipped:], clock.marks[marks:]

    def put(self, clock: StepClock) -> None:
        """Set the clock back to this moment; what it wrote since is gone."""
        clock.now = self.now
        clock.links.restore(self.flying)
        clock.newest, clock.landed = dict(self.newest), set(self.landed)
        events, skipped, marks = self.lengths
        del clock.events[events:], clock.skipped[skipped:], clock.marks[marks:]


def run_clock(steps: Sequence[Timed], transfers: int = 0) -> StepClock:
    """Run a program from its beginning until the processor has nothing more to do; ``transfers`` at a time on each kind
    of links, and further ones wait in the order in which they began (0: all at once).

    Example: ``run_clock([Start(0, 2.0, {"nvlink": 2.0}), Task(1, 1.5), Done(0)]).now`` is 2.0.
    """
    clock = StepClock(links=BusyLinks(transfers))
    path = clock.block(steps)
    clock.critical_path = tuple(
        PathStep(work, kind, seconds, count, loops) for (kind, work, loops), (seconds, count) in path.items()
    )
    return clock


def _way_back(done: _TimedBlock) -> _Path:
    """From the end of a block to its beginning: what waited leads to the transfer, and that to where it began."""
    parts: list[_Path] = []
    at = len(done.acts)
    while at:
        path, flight = done.acts[at - 1]
        parts.append(path)
        at = at - 1 if flight is None else done.begun[flight]
    out: _Path = {}
    for path in reversed(parts):
        _add(out, path, 1)
    return out


def _add(path: _Path, more: _Path, times: int) -> None:
    for part, (seconds, count) in more.items():
        had, n = path.get(part, (0.0, 0))
        path[part] = (had + times * seconds, n + times * count)
