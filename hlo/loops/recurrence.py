"""The rows that a loop along a dimension reads and writes in order, and the values that it carries from row to row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from shardc.hlo.evaluate import evaluate_computation
from shardc.hlo.ir.ir import Computation, Instruction, called_computations, has_side_effect, topological, users_of
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import constant, inline
from shardc.hlo.ir.opset import OPS
from shardc.hlo.ir.types import array_shape
from shardc.hlo.loops.loop_counter import LoopCounter, carried_element, find_counter

__all__ = ["CarriedValue", "Recurrence", "RowAccess", "find_recurrence"]

#: Most iterations whose positions are looked at.
_MOST = 1 << 24


@dataclass(frozen=True, slots=True)
class RowAccess:
    """A ``dynamic-slice`` or ``dynamic-update-slice`` of one row of state ``element`` along ``dim``.

    The first iteration accesses row ``first``, and each further iteration the next (or the previous) row.
    """

    at: Instruction
    element: int
    dim: int
    first: int


@dataclass(frozen=True, slots=True)
class CarriedValue:
    """A value that an iteration passes to the next one. ``before`` are the equal instructions of the body that read the
    old value, ``after`` is the new value. It is element ``element`` of the state or, if ``row`` is set, the row of that
    element before the written one.
    """

    before: tuple[Instruction, ...]
    after: Instruction
    element: int
    row: RowAccess | None = None


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A loop along rows; ``step`` is 1 or -1. ``reads`` are accesses to rows that no earlier iteration wrote.

    ``writes`` has one access for each written array, ``kept`` the elements of the state that never change.
    """

    loop: Instruction
    counter: LoopCounter
    trips: int
    step: int
    reads: tuple[RowAccess, ...]
    writes: tuple[RowAccess, ...]
    carries: tuple[CarriedValue, ...]
    kept: frozenset[int]

    @property
    def body(self) -> Computation:
        body: Computation = self.loop.attrs["body"]
        return body

    @property
    def rows(self) -> list[RowAccess]:
        """All accesses to rows."""
        return [*self.reads, *self.writes, *(c.row for c in self.carries if c.row is not None)]

    @property
    def start(self) -> tuple[Instruction, ...]:
        """The state's elements before the loop."""
        return self.loop.operands[0].operands


def find_recurrence(loop: Instruction) -> Recurrence | None:
    """The recurrence of a loop along rows, with the calls of its body inlined; None if the loop is not one, or does
    more."""
    body = loop.attrs["body"]
    if any(map(has_side_effect, body)):
        return None
    body = _open_calls(body)
    if body is not loop.attrs["body"]:
        loop = loop.replace(attrs={**loop.attrs, "body": body})
    counter = find_counter(loop)
    if counter is None or loop.operands[0].opcode != "tuple" or not 2 <= (counter.trips or 0) <= _MOST:
        return None
    if any(map(_runs, body)):
        return None
    return _RecurrenceFinder(loop, body, counter).find()


def _open_calls(c: Computation) -> Computation:
    """The computation with its calls inlined."""
    if not any(i.opcode == "call" for i in c):
        return c
    new: dict[Instruction, Instruction] = {}
    for i in c:
        operands = tuple(new[o] for o in i.operands)
        if i.opcode == "call":
            new[i] = inline(_open_calls(i.attrs["to_apply"]), operands)
        elif i.opcode == "get-tuple-element" and operands[0].opcode == "tuple":
            new[i] = operands[0].operands[i.attrs["index"]]
        else:
            new[i] = i if operands == i.operands else i.replace(operands=operands)
    root = new[c.root]
    return Computation(c.name, topological([*c.parameters, root]), root)


def _runs(i: Instruction) -> bool:
    """Whether the instruction calls a computation, draws random numbers, or is a collective."""
    return i.opcode in ("while", "conditional", "call", "fusion") or OPS[i.opcode].family in ("random", "collective")


@dataclass(slots=True)
class _RecurrenceFinder:
    loop: Instruction
    body: Computation
    counter: LoopCounter
    users: Mapping[Instruction, Sequence[Instruction]] = field(init=False)
    known: dict[Instruction, np.ndarray | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.users = users_of(self.body)

    def find(self) -> Recurrence | None:
        state: tuple[Instruction, ...] = self.body.root.operands
        reads: list[RowAccess] = []
        writes: list[RowAccess] = []
        carries: list[CarriedValue] = []
        kept: set[int] = set()
        steps: set[int] = set()
        for k, x in enumerate(state):
            seen = self._read_elements(k)
            if k == self.counter.index:
                continue
            if carried_element(x, self.body) == k:
                kept.add(k)
                found = list(self._rows(k, seen))
            elif x.opcode == "dynamic-update-slice" and carried_element(x.operands[0], self.body) == k:
                write = self._row(x, k)
                if write is None or any(u is not self.body.root for u in self.users[x]):
                    return None
                writes.append(write[0])
                steps.add(write[1])
                found = list(self._rows(k, seen))
                if len(found) + len({x.operands[0]}) != sum(len(self.users[s]) for s in seen):
                    return None
            elif not x.shape.is_array:
                return None
            else:
                carries.append(CarriedValue(tuple(seen), x, k))
                continue
            reads += [row for row, _ in found]
            steps |= {step for _, step in found}
        if len(steps) != 1:
            return None
        (step,) = steps
        chained = self._chained(reads, writes, step)
        if chained is None:
            return None
        old = [r for r in reads if not any(r.at in c.before for c in chained)]
        return Recurrence(
            self.loop,
            self.counter,
            self.counter.trips or 0,
            step,
            tuple(old),
            tuple(writes),
            (*carries, *chained),
            frozenset(kept),
        )

    def _read_elements(self, k: int) -> list[Instruction]:
        return [i for i in self.body if carried_element(i, self.body) == k]

    def _rows(self, k: int, seen: Sequence[Instruction]) -> Iterator[tuple[RowAccess, int]]:
        for x in seen:
            for u in self.users[x]:
                if u.opcode == "dynamic-slice" and u.operands[0] is x:
                    row = self._row(u, k)
                    if row is not None:
                        yield row

    def _chained(self, reads: Sequence[RowAccess], writes: Sequence[RowAccess], step: int) -> list[CarriedValue] | None:
        """Reads of the row that the previous iteration wrote, as carried values. None if the loop reads earlier rows,
        or a row outside of the array."""
        out: list[CarriedValue] = []
        for w in writes:
            n = w.at.shape.dims[w.dim]
            back = [r for r in reads if r.element == w.element and (w.first - r.first) * step > 0]
            if any(r.dim != w.dim or (w.first - r.first) * step != 1 or not 0 <= r.first < n for r in back):
                return None
            if back:
                out.append(CarriedValue(tuple(r.at for r in back), w.at.operands[1], w.element, back[0]))
        return out

    def _row(self, at: Instruction, k: int) -> tuple[RowAccess, int] | None:
        """The row that ``at`` reads or writes, and how far it moves per iteration; None if it is not a row."""
        reads = at.opcode == "dynamic-slice"
        whole = at.operands[0].shape.dims
        part = at.shape.dims if reads else at.operands[1].shape.dims
        found: tuple[RowAccess, int] | None = None
        for d, (n, size, index) in enumerate(zip(whole, part, at.operands[1 if reads else 2 :], strict=True)):
            places = self._places(index)
            if places is None:
                return None
            places = np.clip(places, 0, n - size)
            steps = np.unique(np.diff(places))
            if size == n and not places.any():
                continue
            if found is not None or size != 1 or len(steps) != 1 or abs(int(steps[0])) != 1:
                return None
            found = RowAccess(at, k, d, int(places[0])), int(steps[0])
        return found

    def _places(self, index: Instruction) -> np.ndarray | None:
        """A number per iteration that depends only on the counter."""
        if index not in self.known:
            self.known[index] = self._evaluated(index)
        return self.known[index]

    def _evaluated(self, index: Instruction) -> np.ndarray | None:
        count, trips = self.counter, self.counter.trips or 0
        new: dict[Instruction, Instruction] = {}
        for i in topological([index]):
            if carried_element(i, self.body) == count.index:
                numbers = count.start + count.step * np.arange(trips, dtype=np.int64)
                new[i] = constant(Literal(numbers.astype(i.shape.dtype.numpy)), i)
            elif i.opcode == "parameter":
                continue
            elif i.opcode == "reshape" and i.shape.size == 1 and i.operands[0] in new:
                new[i] = new[i.operands[0]]
            elif i.opcode == "constant" and i.shape.size == 1 and not i.attrs["literal"].is_left_out:
                new[i] = i
            elif OPS[i.opcode].family == "elementwise" and i.shape.size == 1 and all(o in new for o in i.operands):
                if any(called_computations(i)):
                    return None
                new[i] = i.replace(shape=array_shape(i.shape.dtype, trips), operands=tuple(new[o] for o in i.operands))
            else:
                return None
        root = new[index]
        made = evaluate_computation(Computation("places", topological([root]), root), [])
        return np.broadcast_to(np.asarray(made).reshape(-1), (trips,)).astype(np.int64)
