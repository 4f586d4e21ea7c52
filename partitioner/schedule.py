"""The latency-hiding schedule: starts early, dones late, and between them what computes.

One processor runs the instructions in order; transfers go on beside it, one after the other on each channel (a level
of links) in the order in which they were begun. `timeline` says how long an order then takes. `list_schedules` makes
orders by list scheduling (Graham, "Bounds on Multiprocessing Timing Anomalies", 1969): whenever the processor is free
it begins a transfer that may begin, else the best instruction that waits for nothing, and only where there is none it
waits for the transfer that ends first. Best is what came first, or what is on the longest way to the end (Hu, 1961), or
what lets a transfer begin soonest; whoever asks takes the best of these orders. Overlap by decomposed collectives (Wang
et al., "Overlap Communication with Dependent Computation via Decomposition", ASPLOS 2023) needs no more than that: the
parts of a ring are permutes like any others.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from shardc.costs.network.transfer import Transfer
from shardc.hlo.ir.asynchronous import is_done, is_start
from shardc.hlo.ir.ir import Computation, Instruction, has_side_effect
from shardc.partitioner.pace_moves import pace_moves

__all__ = ["Inside", "ScheduleCosts", "ScheduledOrder", "Timeline", "list_schedules", "timeline"]

Order = tuple[Instruction, ...]

#: What is no delay of an iteration.
_ROUNDING = 1e-9

#: Starts before others, rank, number: the smallest comes first.
_Key = tuple[int, float, int]


class ScheduleCosts(Protocol):
    """What instructions cost on the machine that is scheduled for."""

    def seconds(self, i: Instruction) -> float:
        """The processor's own time for ``i``: a kernel's, or what it takes to start or await a transfer."""
        ...

    def transfer(self, i: Instruction) -> Transfer | None:
        """For starts and for collectives that nobody splits: what travels. None for everything else."""
        ...

    def inside(self, i: Instruction) -> Inside | None:
        """What a loop or a conditional runs; None for everything else, and where nothing travels inside."""
        ...


@dataclass(frozen=True, slots=True)
class Inside:
    """What ``i`` runs: ``times`` iterations of all ``parts`` one after the other, or (``one``) one of them."""

    parts: Sequence[tuple[Sequence[Instruction], ScheduleCosts]]
    times: int
    one: bool = False


@dataclass(frozen=True, slots=True)
class Timeline:
    """How an order runs: ``seconds`` in all, and by start the seconds from it to the end of its transfer that the
    processor waited for (``exposed``) and that it did other things in (``hidden``), those in a queue included.
    ``exposed`` has collectives without a pair too."""

    seconds: float
    exposed: Mapping[Instruction, float]
    hidden: Mapping[Instruction, float]


@dataclass(frozen=True, slots=True)
class ScheduledOrder:
    """An order and how it runs."""

    order: Order
    timeline: Timeline


def timeline(order: Sequence[Instruction], costs: ScheduleCosts, joined: Set[Instruction] = frozenset()) -> Timeline:
    """The modelled run of ``order``, in which every start comes before its done; ``joined`` starts as if they and their
    dones were one operation, where they start."""
    clock = _Clock(costs, joined=joined)
    for i in order:
        clock.run(i)
    return Timeline(clock.now, clock.exposed, clock.hidden)


class _Clock:
    """The processor and its channels while instructions run. Transfers queue on their links: each begins when all that
    were begun before it on any of them have ended."""

    def __init__(
        self,
        costs: ScheduleCosts,
        now: float = 0.0,
        free: Mapping[str, float] | None = None,
        joined: Set[Instruction] = frozenset(),
    ) -> None:
        self._costs = costs
        self._joined = joined
        #: By links, when the last transfer that was begun on them ends.
        self._free: dict[str, float] = dict(free or {})
        self.now = now
        self.end: dict[Instruction, float] = {}
        self.exposed: dict[Instruction, float] = {}
        self.hidden: dict[Instruction, float] = {}
        self._begun: dict[Instruction, float] = {}

    def run(self, i: Instruction) -> None:
        transfer = self._costs.transfer(i)
        if is_done(i):
            if i.operands[0] in self._joined:
                return
            self._wait(i.operands[0])
        if transfer is None:
            self._compute(i)
            return
        alone = i in self._joined or not is_start(i)
        self.now += 0.0 if i in self._joined else self._costs.seconds(i)
        links = transfer.links or (transfer.channel,)
        self._begun[i] = self.now
        self.end[i] = max(self.now, *(self._free.get(x, 0.0) for x in links)) + transfer.seconds
        self._free.update(dict.fromkeys(links, self.end[i]))
        if alone:
            self._wait(i)

    def _compute(self, i: Instruction) -> None:
        inside = self._costs.inside(i) if max(self._free.values(), default=0.0) > self.now else None
        if inside is None:
            self.now += self._costs.seconds(i)
        elif inside.one:
            self._take(max((self._after(part) for part in inside.parts), key=lambda c: c.now))
        else:
            self._repeat(inside, self._costs.seconds(i) / max(1, inside.times))

    def _repeat(self, loop: Inside, alone: float) -> None:
        """Transfers of a loop queue behind those that were begun before it: iterations run until they take no longer
        than ``alone``, and so do all others."""
        for left in range(loop.times, 0, -1):
            begin = self.now
            for part in loop.parts:
                self._take(self._after(part))
            if self.now - begin <= alone * (1 + _ROUNDING):
                self.now += (left - 1) * alone
                return

    def _after(self, part: tuple[Sequence[Instruction], ScheduleCosts]) -> _Clock:
        """The clock when what is called ``part`` has run, beginning now."""
        order, costs = part
        clock = _Clock(costs, self.now, self._free)
        for i in order:
            clock.run(i)
        return clock

    def _take(self, inner: _Clock) -> None:
        self.now, self._free = inner.now, inner._free

    def _wait(self, i: Instruction) -> None:
        waited = max(0.0, self.end[i] - self.now)
        self.now += waited
        self.exposed[i] = waited
        if is_start(i):
            self.hidden[i] = max(0.0, self.end[i] - self._begun[i] - waited)


def list_schedules(computation: Computation, costs: ScheduleCosts, limits: Sequence[int]) -> Iterator[ScheduledOrder]:
    """Orders of ``computation`` with at most so many transfers in flight on a channel as ``limits`` say, one after the
    other. Each keeps operands before users, starts before dones, and what has side effects in order.

    The first one is the order that is given, every done right behind its start.

    Example: ``min(schedules(c, costs, (2, 1)), key=lambda p: p.timeline.seconds)``.
    """
    graph = _OrderGraph.of(computation, costs)
    seen: set[Order] = set()
    for order in graph.orders(costs, limits):
        if order not in seen:
            seen.add(order)
            yield ScheduledOrder(order, timeline(order, costs))


@dataclass(frozen=True, slots=True)
class _OrderGraph:
    """Who waits for whom; ``tail`` is the longest way from the beginning of an instruction to the end, in seconds,
    ``ahead`` the shortest to a transfer that may then begin (infinite where there is none)."""

    instructions: Order
    number: Mapping[Instruction, int]
    before: Mapping[Instruction, tuple[Instruction, ...]]
    users: Mapping[Instruction, Sequence[Instruction]]
    tail: Mapping[Instruction, float]
    ahead: Mapping[Instruction, float]
    done: Mapping[Instruction, Instruction]

    @staticmethod
    def of(computation: Computation, costs: ScheduleCosts) -> _OrderGraph:
        instructions = computation.instructions
        before: dict[Instruction, tuple[Instruction, ...]] = {}
        effect: tuple[Instruction, ...] = ()
        for i in instructions:
            before[i] = tuple(dict.fromkeys((*i.operands, *(effect if has_side_effect(i) else ()))))
            effect = (i,) if has_side_effect(i) else effect
        for i, others in pace_moves(instructions).items():
            before[i] = tuple(dict.fromkeys((*before[i], *others)))
        users: dict[Instruction, list[Instruction]] = {i: [] for i in instructions}
        for i in instructions:
            for o in before[i]:
                users[o].append(i)
        tail: dict[Instruction, float] = {}
        ahead: dict[Instruction, float] = {}
        for i in reversed(instructions):
            nearest = min((0.0 if is_start(u) else ahead[u] for u in users[i]), default=math.inf)
            ahead[i] = costs.seconds(i) + nearest
            transfer = costs.transfer(i)
            own = costs.seconds(i) + (0.0 if transfer is None else transfer.seconds)
            tail[i] = own + max((tail[u] for u in users[i]), default=0.0)
        done = {i.operands[0]: i for i in instructions if is_done(i)}
        number = {i: n for n, i in enumerate(instructions)}
        return _OrderGraph(instructions, number, before, users, tail, ahead, done)

    def orders(self, costs: ScheduleCosts, limits: Sequence[int]) -> Iterator[Order]:
        yield self.adjacent()
        for limit in limits:
            yield _ListSchedule(self, costs, limit, lambda i: 0.0).order()
            yield _ListSchedule(self, costs, limit, lambda i: -self.tail[i]).order()
            yield _ListSchedule(self, costs, limit, self.ahead.__getitem__).order()

    def adjacent(self) -> Order:
        """The order that is given, every done right behind its start."""
        order: dict[Instruction, None] = {}
        for i in self.instructions:
            order[i] = None
            if i in self.done:
                order[self.done[i]] = None
        return tuple(order)


class _ListSchedule:
    """One list schedule. An instruction is *ready* when all that it waits for has run, or is a done whose transfer is
    under way; dones run right before the first that needs them, or when a channel has to be made free. ``rank`` says
    which ready instruction comes first (the smallest; then in the given order), but starts come before all others:
    nothing costs the processor as little and brings as much.
    """

    def __init__(
        self, graph: _OrderGraph, costs: ScheduleCosts, limit: int, rank: Callable[[Instruction], float]
    ) -> None:
        self._graph = graph
        self._costs = costs
        self._limit = limit
        self._rank = rank
        self._clock = _Clock(costs)
        self._order: dict[Instruction, None] = {}
        self._missing = {i: len(b) for i, b in graph.before.items()}
        #: Ready and waiting for nothing; ready but for transfers under way (with the time of the last); starts that
        #: their channel has no place for.
        self._ready: list[_Key] = []
        self._waiting: list[tuple[float, _Key]] = []
        self._blocked: dict[str, list[_Key]] = {}
        self._flying: dict[str, dict[Instruction, None]] = {}
        self._known_dones: set[Instruction] = set()

    def order(self) -> Order:
        for i in self._graph.instructions:
            if not self._missing[i]:
                self._admit(i)
        while len(self._order) < len(self._graph.instructions):
            self._wake()
            if self._ready:
                self._take(heapq.heappop(self._ready))
            elif self._waiting:
                self._take(heapq.heappop(self._waiting)[1])
            else:
                self._make_room()
        return tuple(self._order)

    def _admit(self, i: Instruction) -> None:
        """``i`` waits for nothing but dones that could run now, or it is such a done itself."""
        if is_done(i):
            self._known_dones.add(i)
            self._release(i)
            return
        ends = [self._clock.end[o.operands[0]] for o in self._graph.before[i] if o in self._known_dones]
        key = (0, -self._graph.tail[i]) if is_start(i) else (1, self._rank(i))
        heapq.heappush(self._waiting, (max(ends, default=0.0), (*key, self._graph.number[i])))

    def _release(self, i: Instruction) -> None:
        """``i`` has run, or is a done that may run at any time: one thing less that its users wait for."""
        for u in self._graph.users[i]:
            self._missing[u] -= 1
            if not self._missing[u]:
                self._admit(u)

    def _wake(self) -> None:
        """What waits for nothing any more is ready; starts too that have to wait for a transfer that has ended."""
        for channel, blocked in self._blocked.items():
            while blocked and self._land(channel, wait=False):
                pass
        while self._waiting and self._waiting[0][0] <= self._clock.now:
            heapq.heappush(self._ready, heapq.heappop(self._waiting)[1])

    def _take(self, key: _Key) -> None:
        """Run the instruction with this key, after the dones that it needs; or block it if its channel is full."""
        i = self._graph.instructions[key[-1]]
        if is_start(i):
            channel = self._channel(i)
            if len(self._flying.setdefault(channel, {})) >= self._limit and not self._land(channel, wait=False):
                heapq.heappush(self._blocked.setdefault(channel, []), key)
                return
            self._flying[channel][i] = None
        for o in sorted(self._graph.before[i], key=self._graph.number.__getitem__):
            if o in self._known_dones and o not in self._order:
                self._finish(o)
        self._run(i)
        self._release(i)

    def _run(self, i: Instruction) -> None:
        self._order[i] = None
        self._clock.run(i)

    def _finish(self, done: Instruction) -> None:
        """The done runs; a start that its channel had no place for is ready again."""
        channel = self._channel(done.operands[0])
        self._run(done)
        del self._flying[channel][done.operands[0]]
        if self._blocked.get(channel):
            heapq.heappush(self._ready, heapq.heappop(self._blocked[channel]))

    def _land(self, channel: str, *, wait: bool) -> bool:
        """Run the done of a transfer on ``channel``: one that has ended, or the first to end if that is to be waited
        for. False when there is none."""
        flying = [s for s in self._flying.get(channel, {}) if self._graph.done.get(s) in self._known_dones]
        first = min(flying, key=lambda s: (self._clock.end[s], self._graph.number[s]), default=None)
        if first is None or (not wait and self._clock.end[first] > self._clock.now):
            return False
        self._finish(self._graph.done[first])
        return True

    def _make_room(self) -> None:
        """Nothing is ready: wait for the first transfer that makes something so."""
        channels = [c for c, blocked in self._blocked.items() if blocked] or list(self._flying)
        end = self._clock.end.__getitem__
        for channel in sorted(channels, key=lambda c: (min(map(end, self._flying[c]), default=0.0), c)):
            if self._land(channel, wait=True):
                return
        raise AssertionError("a transfer is never awaited")

    def _channel(self, start: Instruction) -> str:
        transfer = self._costs.transfer(start)
        assert transfer is not None, f"%{start.name} starts nothing"
        return transfer.channel
