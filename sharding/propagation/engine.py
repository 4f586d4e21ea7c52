"""The work-list algorithm (Kildall 1973): equations are visited until nothing changes, per user priority and phase.

Shardings are interned and known by number. What a visit does depends on the rule, the allowed directions and the
numbers of its tensors' shardings only, so the answer is remembered: a hundred equal layers are worked out once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, DimSharding, Sharding
from shardc.sharding.prepare.manual import outer_sharding
from shardc.sharding.propagation.factor_step import FactorStep, Gain
from shardc.sharding.propagation.graph import Equation, PropagationGraph
from shardc.sharding.propagation.op_priorities import PHASES, OpClass, directions
from shardc.sharding.propagation.options import PropagationOptions
from shardc.sharding.rules.factor_rule import Direction

__all__ = ["Engine", "Step"]

#: (value, equation number or -1 - result number, what it gained)
Step = tuple[int, int, tuple[Gain, ...]]
_Update = tuple[int, int, tuple[Gain, ...]]


class Engine:
    """Propagates through ``graph``; `shardings` holds the outcome, `steps` how it came about.

    An engine made ``after`` one of the same equations and options, with other annotations, knows its steps.
    """

    def __init__(self, graph: PropagationGraph, options: PropagationOptions, after: Engine | None = None) -> None:
        self.graph = graph
        self.options = options
        self.steps: list[Step] = []
        self._near: dict[int, list[int]] = after._near if after else {}
        self._pool: list[Sharding] = after._pool if after else []
        self._numbers: dict[Sharding, int] = after._numbers if after else {}
        self._memo: dict[tuple[object, ...], tuple[_Update, ...]] = after._memo if after else {}
        start = _first if options.by_user_priority else _same
        first = {id(s): s for s in graph.initial}
        numbers = {key: self._number(start(s)) for key, s in first.items()}
        self._state = [numbers[id(s)] for s in graph.initial]

    @property
    def shardings(self) -> list[Sharding]:
        """The current sharding of every value."""
        out = [self._pool[n] for n in self._state]
        for whole, (inside, border) in self.graph.outside.items():
            out[whole] = outer_sharding(border.given, out[inside], border.axes)
        return out

    @property
    def changed(self) -> set[int]:
        """The values that got axes."""
        return {v for v, _, _ in self.steps}

    def run(self) -> None:
        """Propagate everything, dimensions of user priority 0 first."""
        self._phases()
        if not self.options.by_user_priority:
            return
        given = {id(s): s for s in self.graph.initial}.values()
        later = sorted({d.priority for s in given for d in s.dims if d.priority > 0})
        for priority in later:
            for v, original in enumerate(self.graph.initial):
                if any(d.priority == priority for d in original.dims):
                    self._state[v] = self._number(_with_priority(self._pool[self._state[v]], original, priority))
            self._phases()

    def _phases(self) -> None:
        for phase in range(0 if self.options.by_op_priority else PHASES - 1, PHASES):
            for strategy in self.options.strategy.split("-then-"):
                basic = strategy == "basic"
                self._flow_results(basic)
                self._work(phase, basic)
                self._flow_results(basic)

    def _flow_results(self, basic: bool) -> None:
        for n, e in enumerate(self.graph.results):
            self._visit(e, -1 - n, (Direction.BOTH,) * len(e.rule.factors), basic)

    def _work(self, phase: int, basic: bool) -> None:
        equations, near = self.graph.equations, self._near
        stack = list(range(len(equations) - 1, -1, -1))
        waiting = bytearray(b"\x01") * len(equations)
        while stack:
            n = stack.pop()
            waiting[n] = 0
            e = equations[n]
            if e.op_class is OpClass.BARRIER:
                allowed = (e.direction,) * len(e.rule.factors)
            else:
                allowed = directions(e.rule, e.op_class, e.several_uses, phase)
            for v in self._visit(e, n, allowed, basic):
                concerned = near.get(v)
                if concerned is None:
                    concerned = near[v] = self.graph.near(v)
                for other in concerned:
                    if other != n and not waiting[other]:
                        waiting[other] = 1
                        stack.append(other)

    def _visit(self, e: Equation, number: int, allowed: tuple[Direction, ...], basic: bool) -> list[int]:
        """Step through one equation; the values that changed."""
        state = self._state
        key = (e.rule, allowed, e.op_class, basic, e.border, *(state[v] for v in e.tensors))
        updates = self._memo.get(key)
        if updates is None:
            updates = self._memo[key] = self._step(e, allowed, basic, [state[v] for v in e.tensors])
        changed: list[int] = []
        for position, new, gains in updates:
            v = e.tensors[position]
            if v in changed:
                continue
            state[v] = new
            changed.append(v)
            self.steps.append((v, number, gains))
        return changed

    def _step(
        self, e: Equation, allowed: tuple[Direction, ...], basic: bool, numbers: list[int]
    ) -> tuple[_Update, ...]:
        olds = [self._pool[n] for n in numbers]
        if e.border is not None:
            olds[-1] = e.border.as_source(olds[-1])
        if not any(d.axes for s in olds for d in s.dims):
            return ()
        mesh = _common_mesh(olds)
        if mesh is None:
            return ()
        elementwise = e.op_class is OpClass.ELEMENTWISE
        conservative = self.options.conservative and e.op_class is not OpClass.EDGE
        step = FactorStep(e.rule, olds, allowed, mesh=mesh, elementwise=elementwise, conservative=conservative)
        if basic:
            step.run_basic()
        else:
            step.run_aggressive()
        updates = []
        for position, (old, new) in enumerate(zip(olds, step.results(), strict=True)):
            if new is not old:
                if e.border is not None and position == len(olds) - 1:
                    new = e.border.as_target(new)
                updates.append((position, self._number(new), step.gains(position)))
        return tuple(updates)

    def _number(self, sharding: Sharding) -> int:
        number = self._numbers.get(sharding)
        if number is None:
            number = self._numbers[sharding] = len(self._pool)
            self._pool.append(sharding)
        return number


def _common_mesh(shardings: Sequence[Sharding]) -> Mesh | None:
    """The mesh that all shardings with axes are over; None where they differ or one is on a single device."""
    found: Mesh | None = None
    for mesh in (s.mesh for s in shardings):
        if mesh.is_maximal:
            return None
        if mesh.axes and mesh is not found:
            if found is not None and mesh != found:
                return None
            found = mesh
    return found


def _same(sharding: Sharding) -> Sharding:
    return sharding


def _first(sharding: Sharding) -> Sharding:
    """Before its turn a dimension of lower priority is empty and closed, its axes are kept replicated."""
    if not any(d.priority for d in sharding.dims):
        return sharding
    waiting = tuple(a for d in sharding.dims if d.priority > 0 for a in d.axes)
    dims = tuple(DimSharding() if d.priority > 0 else d for d in sharding.dims)
    order = sharding.mesh.axis_names.index

    def in_mesh(axis: AxisRef) -> tuple[int, int]:
        return order(axis.name), axis.pre

    return replace(sharding, dims=dims, replicated=tuple(sorted((*sharding.replicated, *waiting), key=in_mesh)))


def _with_priority(current: Sharding, original: Sharding, priority: int) -> Sharding:
    """``current`` with the original dimensions of ``priority``."""
    mine = [o.priority == priority for o in original.dims]
    dims = tuple(
        DimSharding(o.axes, o.closed) if m else c for m, o, c in zip(mine, original.dims, current.dims, strict=True)
    )
    released = {a for m, o in zip(mine, original.dims, strict=True) if m for a in o.axes}
    return replace(current, dims=dims, replicated=tuple(a for a in current.replicated if a not in released))
