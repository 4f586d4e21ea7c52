"""The work list: visits equations until nothing changes, phase after phase, one user priority after another.

Shardings are interned and known by number. What a visit does depends on the rule, the allowed directions and the
numbers of its tensors' shardings only, so the answer is remembered: a hundred equal layers are worked out once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from shardc.hlo.sharding import DimSharding, Sharding
from shardc.sharding.factor_step import Direction, FactorStep, Gain
from shardc.sharding.factors import FactorRule
from shardc.sharding.graph import Equation, Graph
from shardc.sharding.schedule import PHASES, OpClass, directions

__all__ = ["Engine", "PropagationOptions", "Step"]

#: (value, equation number or -1 - result number, what it gained)
Step = tuple[int, int, tuple[Gain, ...]]
_Update = tuple[int, int, tuple[Gain, ...]]


@dataclass(frozen=True, slots=True)
class PropagationOptions:
    """``strategy`` is ``aggressive`` or ``basic``; ``conservative`` never splits an axis; ``by_op_priority`` off
    lets all operations take part from the start."""

    strategy: str = "aggressive"
    conservative: bool = False
    by_op_priority: bool = True


class Engine:
    """Propagates through ``graph``; `shardings` holds the outcome, `steps` how it came about."""

    def __init__(self, graph: Graph, options: PropagationOptions) -> None:
        self.graph = graph
        self.options = options
        self.steps: list[Step] = []
        self._pool: list[Sharding] = []
        self._numbers: dict[Sharding, int] = {}
        self._memo: dict[tuple[object, ...], tuple[_Update, ...]] = {}
        first = {id(s): s for s in graph.initial}
        numbers = {key: self._number(_without_priorities(_first(s))) for key, s in first.items()}
        self._state = [numbers[id(s)] for s in graph.initial]

    @property
    def shardings(self) -> list[Sharding]:
        """The current sharding of every value."""
        return [self._pool[n] for n in self._state]

    def run(self) -> None:
        """Propagate everything, dimensions of user priority 0 first."""
        later = sorted({d.priority for s in self.graph.initial for d in s.dims if d.priority > 0})
        self._phases()
        for priority in later:
            for v, original in enumerate(self.graph.initial):
                if any(d.priority == priority for d in original.dims):
                    self._state[v] = self._number(_with_priority(self._pool[self._state[v]], original, priority))
            self._phases()

    def _phases(self) -> None:
        for phase in range(0 if self.options.by_op_priority else PHASES - 1, PHASES):
            self._flow_results()
            self._work(phase)
            self._flow_results()

    def _flow_results(self) -> None:
        for n, e in enumerate(self.graph.results):
            for _ in self._visit(e, -1 - n, (Direction.BOTH,) * len(e.rule.factors)):
                pass

    def _work(self, phase: int) -> None:
        equations, users, maker = self.graph.equations, self.graph.users, self.graph.maker
        stack = list(range(len(equations) - 1, -1, -1))
        waiting = bytearray(b"\x01") * len(equations)
        while stack:
            n = stack.pop()
            waiting[n] = 0
            e = equations[n]
            allowed = directions(e.rule, e.op_class, e.several_uses, phase)
            for v in self._visit(e, n, allowed):
                for other in (maker[v], *reversed(users[v])):
                    if other >= 0 and other != n and not waiting[other]:
                        waiting[other] = 1
                        stack.append(other)

    def _visit(self, e: Equation, number: int, allowed: tuple[Direction, ...]) -> list[int]:
        """Step through one equation; the values that changed."""
        state = self._state
        elementwise = e.op_class is OpClass.ELEMENTWISE
        key = (e.rule, allowed, elementwise, *(state[v] for v in e.tensors))
        updates = self._memo.get(key)
        if updates is None:
            updates = self._memo[key] = self._step(e.rule, allowed, elementwise, [state[v] for v in e.tensors])
        changed = []
        for position, new, gains in updates:
            v = e.tensors[position]
            if v in changed:
                continue
            state[v] = new
            changed.append(v)
            self.steps.append((v, number, gains))
        return changed

    def _step(
        self, rule: FactorRule, allowed: tuple[Direction, ...], elementwise: bool, numbers: list[int]
    ) -> tuple[_Update, ...]:
        olds = [self._pool[n] for n in numbers]
        if not any(d.axes for s in olds for d in s.dims):
            return ()
        step = FactorStep(rule, olds, allowed, elementwise=elementwise, conservative=self.options.conservative)
        if self.options.strategy == "basic":
            step.run_basic()
        else:
            step.run_aggressive()
        updates = []
        for position, (old, new) in enumerate(zip(olds, step.results(), strict=True)):
            if new is not old:
                updates.append((position, self._number(new), step.gains(position)))
        return tuple(updates)

    def _number(self, sharding: Sharding) -> int:
        number = self._numbers.get(sharding)
        if number is None:
            number = self._numbers[sharding] = len(self._pool)
            self._pool.append(sharding)
        return number


def _without_priorities(sharding: Sharding) -> Sharding:
    if not any(d.priority for d in sharding.dims):
        return sharding
    return replace(sharding, dims=tuple(DimSharding(d.axes, d.closed) for d in sharding.dims))


def _first(sharding: Sharding) -> Sharding:
    """Before its turn a dimension of lower priority is empty and closed, its axes are kept replicated."""
    waiting = tuple(a for d in sharding.dims if d.priority > 0 for a in d.axes)
    if not waiting and not any(d.priority for d in sharding.dims):
        return sharding
    dims = tuple(DimSharding() if d.priority > 0 else d for d in sharding.dims)
    return replace(sharding, dims=dims, replicated=(*sharding.replicated, *waiting))


def _with_priority(current: Sharding, original: Sharding, priority: int) -> Sharding:
    """``current`` with the original dimensions of ``priority``."""
    mine = [o.priority == priority for o in original.dims]
    dims = tuple(
        DimSharding(o.axes, o.closed) if m else c for m, o, c in zip(mine, original.dims, current.dims, strict=True)
    )
    released = {a for m, o in zip(mine, original.dims, strict=True) if m for a in o.axes}
    return replace(current, dims=dims, replicated=tuple(a for a in current.replicated if a not in released))
