"""One propagation step: through one operation, along its factors.

For each factor the axes that may spread are the longest list on which the tensors that have the factor agree. A
tensor takes what it can of that list: not the axes that it uses elsewhere, keeps replicated or unreduced, or has no
room for. The *basic* strategy spreads only what every tensor can take; the *aggressive* one decides for each tensor
alone, and where two factors of one tensor want the same axis, prefers the factor that the largest tensor brings, then
(elementwise) the more sharded one, then earlier tensors and factors. This order is Shardy's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, Sharding
from shardc.sharding.axes.sub_axes import (
    Axes,
    contains,
    extent,
    is_prefix,
    is_prefix_list,
    minus,
    prefix_without_overlaps,
    sub_axis,
)
from shardc.sharding.propagation.projection import FactorState, Projection, project, unproject
from shardc.sharding.rules.factor_rule import Direction, FactorRule

__all__ = ["FactorStep", "Gain"]

#: (dimension, axes gained, factor, tensor that gave them)
Gain = tuple[int, Axes, int, int]


class FactorStep:
    """The state of one step: ``projections`` of all tensors of ``rule``, operands first."""

    def __init__(
        self,
        rule: FactorRule,
        shardings: Sequence[Sharding],
        directions: Sequence[Direction],
        *,
        mesh: Mesh | None = None,
        elementwise: bool = False,
        conservative: bool = False,
    ) -> None:
        self.rule = rule
        self.mesh: Mesh = mesh or shardings[0].mesh
        self.shardings = shardings
        self.directions = directions
        self.elementwise = elementwise
        self.conservative = conservative
        self.num_operands = len(rule.operands)
        pairs = zip(shardings, rule.tensors, strict=True)
        self.projections = [project(s, t, rule.factors, self.mesh) for s, t in pairs]
        self._before = [{f: s.axes for f, s in p.states.items()} for p in self.projections]

    def results(self) -> list[Sharding]:
        """The shardings of all tensors after the step; unchanged ones are the same objects."""
        out = []
        for old, tensor, projection in zip(self.shardings, self.rule.tensors, self.projections, strict=True):
            new = unproject(projection.states, tensor, self.rule.factors, old, self.mesh)
            same = all(n.axes == o.axes for n, o in zip(new.dims, old.dims, strict=True))
            out.append(old if same else new)
        return out

    def gains(self, tensor: int) -> tuple[Gain, ...]:
        """What a tensor got in the step: (dimension, axes, factor, tensor they came from)."""
        out: list[Gain] = []
        for dim, indices in enumerate(self.rule.tensors[tensor]):
            for f in indices:
                new = self.projections[tensor].states[f].axes
                added = minus(new, self._before[tensor][f], self.mesh)
                if added:
                    out.append((dim, added, f, self._giver(tensor, f, new)))
        return tuple(out)

    def _giver(self, tensor: int, factor: int, axes: Axes) -> int:
        have = [t for t, before in enumerate(self._before) if t != tensor and before.get(factor)]
        full = [t for t in have if is_prefix_list(axes, self._before[t][factor], self.mesh)]
        return (full or have or [tensor])[0]

    def agree_on(self, factor: int) -> Axes:
        """The longest list of axes that the giving tensors agree on and that no other tensor contradicts."""
        if self.rule.factors[factor].blocked:
            return ()
        direction = self.directions[factor]
        operands, results = self.projections[: self.num_operands], self.projections[self.num_operands :]
        groups = {
            Direction.NONE: (),
            Direction.FORWARD: ((operands, True), (results, False)),
            Direction.BACKWARD: ((results, True), (operands, False)),
            Direction.BOTH: ((operands, True), (results, True)),
        }[direction]
        axes: Axes = ()
        grow = True
        for group, gives in groups:
            grow = grow and gives
            for p in group:
                state = p.states.get(factor)
                if state is not None:
                    axes, grow = _compatible(axes, state.axes, grow, self.mesh)
        return axes

    def run_basic(self) -> None:
        """Spread along each factor what every tensor can take."""
        for f in range(len(self.rule.factors)):
            axes = self._truncate(self.agree_on(f), partial(self._fits_everywhere, factor=f))
            for p in self.projections:
                state = p.states.get(f)
                if state is not None and _strictly_longer(state.axes, axes, self.mesh):
                    state.axes = axes

    def run_aggressive(self) -> None:
        """Spread to each tensor what it can take, results first."""
        agreed = [self.agree_on(f) for f in range(len(self.rule.factors))]
        if not any(agreed):
            return
        order = self._order(agreed)
        results = self.projections[self.num_operands :]
        for p in results:
            for f in order:
                self._offer(p, f, agreed[f], None)
        for p in self.projections[: self.num_operands]:
            for f in order:
                self._offer(p, f, agreed[f], results if self.elementwise else None)

    def _offer(self, p: Projection, factor: int, axes: Axes, results: Sequence[Projection] | None) -> None:
        """Give a tensor what it can take of ``axes``; with ``results``, no more than those have (no way sideways)."""
        state = p.states.get(factor)
        if state is None or not axes:
            return
        new = self._truncate(axes, lambda a, before: self._fits_factor(a, before, factor, p, state))
        if not _strictly_longer(state.axes, new, self.mesh):
            return
        new = self._truncate(new, lambda a, _: self._fits_tensor(a, factor, p))
        for result in results or ():
            limit = result.states.get(factor)
            if limit is not None and _strictly_longer(limit.axes, new, self.mesh):
                new = limit.axes
        if _strictly_longer(state.axes, new, self.mesh):
            state.axes = new

    def _order(self, agreed: Sequence[Axes]) -> list[int]:
        """Factors by precedence (see the module docstring)."""
        source = [(-1, -1)] * len(agreed)
        for t, p in enumerate(self.projections):
            size = math.prod(self.rule.factors[f].size for f in p.states)
            for f, state in p.states.items():
                if agreed[f] and is_prefix_list(agreed[f], state.axes, self.mesh) and size > source[f][0]:
                    source[f] = (size, t)
        shards = [extent(a, self.mesh) if self.elementwise else 0 for a in agreed]
        return sorted(range(len(agreed)), key=lambda f: (-source[f][0], -shards[f], source[f][1], f))

    def _truncate(self, axes: Axes, fits: Callable[[AxisRef, int], AxisRef | None]) -> Axes:
        """Keep the major axes that fit; ``fits(axis, shards before it)`` returns the part of an axis that does."""
        kept: list[AxisRef] = []
        before = 1
        for a in axes:
            part = fits(a, before)
            if part is None or (self.conservative and not part.is_full):
                break
            kept.append(part)
            if part != a:
                break
            before *= a.extent(self.mesh)
        return tuple(kept)

    def _fits_everywhere(self, axis: AxisRef, before: int, factor: int) -> AxisRef | None:
        part = axis
        for p in self.projections:
            fitting = self._fits_tensor(part, factor, p)
            state = p.states.get(factor)
            if fitting is not None and state is not None:
                fitting = self._fits_factor(fitting, before, factor, p, state)
            if fitting is None:
                return None
            part = fitting
        return part

    def _fits_tensor(self, axis: AxisRef, factor: int, p: Projection) -> AxisRef | None:
        """The major part of ``axis`` that no other factor of the tensor uses."""
        used = (a for f, s in p.states.items() if f != factor for a in (*s.overflow, *s.axes))
        return prefix_without_overlaps(axis, used, self.mesh)

    def _fits_factor(
        self, axis: AxisRef, before: int, factor: int, p: Projection, state: FactorState
    ) -> AxisRef | None:
        """The major part of ``axis`` that the tensor has, or can still take, on this factor."""
        part = prefix_without_overlaps(axis, p.taken, self.mesh)
        if part is None or any(contains(a, part, self.mesh) for a in state.axes):
            return part
        if not state.closed and not state.overflow:
            room = part if state.minor else self._fitting_part(part, before, self.rule.factors[factor].size)
            if room is not None:
                return room
        last = state.axes[-1] if state.axes else None
        return last if last is not None and is_prefix(last, part, self.mesh) else None

    def _fitting_part(self, axis: AxisRef, before: int, size: int) -> AxisRef | None:
        """The major part of ``axis`` that divides what ``before`` shards leave of a factor."""
        if before == 0 or size % before:
            return None
        common = math.gcd(size // before, axis.extent(self.mesh))
        if common == axis.extent(self.mesh):
            return axis
        if common == 1:
            return None
        low = 1 if axis.is_full else axis.pre
        return sub_axis(axis.name, low, low * common, self.mesh)


def _strictly_longer(old: Axes, new: Axes, mesh: Mesh) -> bool:
    return old != new and is_prefix_list(old, new, mesh)


def _compatible(old: Axes, new: Axes, grow: bool, mesh: Mesh) -> tuple[Axes, bool]:
    """The major axes on which two lists agree, and whether a third list may still extend them.

    The longer list wins if the other one is its prefix (and ``grow`` allows more than ``old``). Otherwise both end
    where they differ: at the shorter of two sub-axes if one is part of the other.
    """
    out: list[AxisRef] = []
    for i in range(min(len(old), len(new))):
        a, b = old[i], new[i]
        if a == b:
            out.append(a)
            continue
        if a.name != b.name:
            return tuple(out), False
        if is_prefix(b, a, mesh):
            if i + 1 < len(new):
                return (*out, b), False
            out.append(a)
        elif is_prefix(a, b, mesh):
            if not grow or i + 1 < len(old):
                return (*out, a), False
            out.append(b)
        else:
            return tuple(out), False
    out += old[len(new) :] if len(old) > len(new) else (new[len(old) :] if grow else ())
    return tuple(out), grow
