"""Divides a step into parts that need the host and runs of work that are put into streams as a whole.

The tree of `shardc.compiler.gpu_program` is divided where the host must read or do something: at loops whose end is a
value in memory, at branches, at computations of the host, and at collectives that go through its memory. What lies
between is a `Segment`, which becomes a graph. A loop of known length without such places is part of its segment when it
is short, and a segment of its own, launched again and again, when it is long.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from shardc.collectives.call.call import BufferRef
from shardc.compiler.gpu_program import (
    AwaitCollective,
    CheckStep,
    ChoiceStep,
    GpuStep,
    HostStep,
    RepeatStep,
    StartCollective,
    leaf_steps,
)

__all__ = ["Branches", "ExchangeNode", "HostNode", "LoopNode", "Node", "Segment", "cut"]

#: Steps that the turns of a loop may have to become part of a segment.
_SHORT = 128


@dataclass(frozen=True, eq=False, slots=True)
class Segment:
    """Work that the devices do without the host."""

    steps: tuple[GpuStep, ...]


@dataclass(frozen=True, eq=False, slots=True)
class LoopNode:
    """``body`` while ``predicate`` (None: ``trips`` times) behind ``condition``."""

    condition: tuple[Node, ...]
    predicate: BufferRef | None
    body: tuple[Node, ...]
    trips: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class Branches:
    """A choice, see `ChoiceStep`."""

    selector: BufferRef
    logical: bool
    branches: tuple[tuple[Node, ...], ...]


@dataclass(frozen=True, eq=False, slots=True)
class HostNode:
    """A kernel on the host."""

    step: HostStep


@dataclass(frozen=True, eq=False, slots=True)
class ExchangeNode:
    """A collective through the host's memory: its start, or where its results are needed (``done``)."""

    step: StartCollective | AwaitCollective

    @property
    def index(self) -> int:
        return self.step.index

    @property
    def done(self) -> bool:
        return isinstance(self.step, AwaitCollective)


Node = Segment | LoopNode | Branches | HostNode | ExchangeNode


def cut(steps: Iterable[GpuStep], staged: Collection[int], asynchronous: Collection[int]) -> tuple[Node, ...]:
    """The nodes of a program. ``staged`` are collectives that go through the host, ``asynchronous`` those of them that
    are awaited somewhere else than where they start."""
    cutter = _Cutter(frozenset(staged), frozenset(asynchronous))
    cutter.add(steps)
    return cutter.finish()


@dataclass(slots=True)
class _Cutter:
    staged: frozenset[int]
    asynchronous: frozenset[int]
    _nodes: list[Node] = field(default_factory=list)
    _run: list[GpuStep] = field(default_factory=list)

    def finish(self) -> tuple[Node, ...]:
        if self._run:
            self._nodes.append(Segment(tuple(self._run)))
            self._run = []
        return tuple(self._nodes)

    def add(self, steps: Iterable[GpuStep]) -> None:
        for step in steps:
            self._add_one(step)

    def _add_one(self, step: GpuStep) -> None:
        match step:
            case RepeatStep():
                self._add_loop(step)
            case ChoiceStep():
                branches = tuple(cut(b, self.staged, self.asynchronous) for b in step.branches)
                self._put(Branches(step.selector, step.logical, branches))
            case HostStep():
                self._put(HostNode(step))
            case StartCollective() if step.index in self.staged:
                self._put(ExchangeNode(step))
            case AwaitCollective() if step.index in self.staged:
                if step.index in self.asynchronous:
                    self._put(ExchangeNode(step))
            case _:
                self._run.append(step)

    def _put(self, node: Node) -> None:
        self.finish()
        self._nodes.append(node)

    def _add_loop(self, step: RepeatStep) -> None:
        checked = any(isinstance(s, CheckStep) for s in leaf_steps(step.condition))
        condition = cut(step.condition, self.staged, self.asynchronous)
        body = cut(step.body, self.staged, self.asynchronous)
        if step.trips is None:
            self._put(LoopNode(condition, step.predicate, body))
            return
        turn = (*condition, *body) if checked else body
        steps = [s for node in turn for s in (node.steps if isinstance(node, Segment) else ())]
        plain = all(isinstance(node, Segment) for node in turn)
        if plain and len(steps) * step.trips <= _SHORT:
            self._run.extend(steps * step.trips)
        else:
            self._put(LoopNode((), None, turn, step.trips))
        if checked:
            self.add(step.condition)
