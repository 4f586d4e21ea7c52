"""Which loops are pipelined, exchange wider halos or keep unchanging collectives: what the step's clock finds fastest.

The passes about loops say what may pay, by what an iteration computes and sends. They do not know what becomes of it:
which transfers are hidden anyway, what a carried buffer costs, what stands in front of the loop. So the program is
finished with all that they propose and with none of it, and both are judged. From the better one, each proposal is
turned round once, and kept turned where that is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from shardc.hlo.errors import InputError, UnsupportedError
from shardc.hlo.ir.ir import Module
from shardc.hlo.passes import Pass
from shardc.partitioner.optimise.loops.delay_reductions import DelayReductions
from shardc.partitioner.optimise.loops.hoist_collectives import HoistCollectives
from shardc.partitioner.optimise.loops.prefetch_gathers import PrefetchGathers
from shardc.partitioner.plan.judge import Judge, Judgement, is_better
from shardc.partitioner.prepare.wide.widen_halos import WidenHalos

__all__ = ["finish_loops"]

#: How many proposals are turned round at most: the first ones of a program, inner loops first.
_TURNS = 12
#: What a proposal has to save of a step: less is rounding.
_LEAST = 1e-3

LoopPass = WidenHalos | HoistCollectives | PrefetchGathers | DelayReductions
#: Loops that stay as they are, by the number of the pass among those about loops.
Kept = tuple[frozenset[str], ...]
Run = Callable[[Module, Sequence[Pass]], Module]


def finish_loops(
    module: Module, passes: Sequence[Pass], run: Run, *, judge: Judge, room: float
) -> tuple[Module, tuple[Pass, ...]]:
    """``module`` after all ``passes``, its loops changed where ``judge`` finds the whole program faster; the passes
    with the loops that they keep.

    ``run`` runs some of the passes on a module; ``room`` are the bytes that a device has. The result is never slower
    than with no loop pipelined or widened and everything hoisted, as ``judge`` has it. Programs that cannot be judged
    (their mesh does not fit the machine, or nobody can lower one of their calls) have all that the passes propose.
    """
    trials = _LoopTrials(tuple(passes), run)
    proposed, kept = trials.propose(module), trials.none_kept
    if proposed:
        try:
            kept = _search(trials, module, proposed, judge, room)
        except (InputError, UnsupportedError):
            kept = trials.none_kept
    return trials.finish(module, kept), trials.passes_with(kept)


@dataclass(frozen=True, slots=True)
class _Proposal:
    """The pass with this number changes the loops of this name; ``plain`` where that is what ``never`` does, too."""

    number: int
    loop: str
    plain: bool


def _search(trials: _LoopTrials, module: Module, proposed: Sequence[_Proposal], judge: Judge, room: float) -> Kept:
    """The best of all proposals, none of them, and the better of these with single ones turned round."""

    def attempt(kept: Kept) -> tuple[Kept, Judgement]:
        return kept, judge(trials.finish(module, kept))

    none = trials.none_kept
    for p in proposed:
        none = none if p.plain else _turn(none, p)
    best = attempt(none)
    if none != trials.none_kept:
        best = _better(attempt(trials.none_kept), best, room)
    if len(proposed) > 1 or proposed[0].plain:
        for p in proposed[:_TURNS]:
            best = _better(attempt(_turn(best[0], p)), best, room)
    return best[0]


def _better(found: tuple[Kept, Judgement], best: tuple[Kept, Judgement], room: float) -> tuple[Kept, Judgement]:
    """The one of less cost within the room; the ``best`` so far where there is next to no difference."""
    least = best[1]
    if least.peak <= room:
        least = replace(least, cost=(least.cost[0] * (1 - _LEAST), *least.cost[1:]))
    return found if is_better(found[1], least, None, room) else best


def _turn(kept: Kept, p: _Proposal) -> Kept:
    """The loops of a proposal stay as they are, or no longer."""
    return tuple(names ^ {p.loop} if n == p.number else names for n, names in enumerate(kept))


@dataclass(slots=True)
class _LoopTrials:
    """Finishes a program with its loops changed in several ways; what is done before the first difference is done
    once."""

    passes: tuple[Pass, ...]
    run: Run
    _made: dict[tuple[int, Kept], Module] = field(default_factory=dict)

    @property
    def _places(self) -> list[int]:
        """Where the passes about loops stand among all."""
        return [n for n, p in enumerate(self.passes) if isinstance(p, LoopPass)]

    @property
    def none_kept(self) -> Kept:
        """Everything is done that the passes propose."""
        return tuple(frozenset[str]() for p in self.passes if isinstance(p, LoopPass))

    def propose(self, module: Module) -> list[_Proposal]:
        """What the passes would do to which loops."""
        found: list[_Proposal] = []
        for number, step, before in self._loop_passes(module):
            names = dict.fromkeys(i.name for i in before.instructions() if i.opcode == "while")
            for name in names:
                alone = replace(step, kept=frozenset(names) - {name})
                if alone.run(before) is before:
                    continue
                if not isinstance(step, HoistCollectives) or step.may_be_hidden(before, name):
                    found.append(_Proposal(number, name, isinstance(step, HoistCollectives)))
        return found

    def _loop_passes(self, module: Module) -> Iterator[tuple[int, LoopPass, Module]]:
        """The passes about loops, by number, with the module in front of each."""
        for number, place in enumerate(self._places):
            step = self.passes[place]
            assert isinstance(step, LoopPass)
            yield number, step, self._until(module, number, self.none_kept)

    def finish(self, module: Module, kept: Kept) -> Module:
        """The program with some loops ``kept`` as they are."""
        return self._until(module, len(kept), kept)

    def passes_with(self, kept: Kept) -> tuple[Pass, ...]:
        """All passes, those about loops with what they keep."""
        names = iter(kept)
        return tuple(replace(p, kept=next(names)) if isinstance(p, LoopPass) else p for p in self.passes)

    def _until(self, module: Module, number: int, kept: Kept) -> Module:
        """The module in front of the loop pass of this number."""
        key = (number, kept[:number])
        if key not in self._made:
            places = self._places
            begin = places[number - 1] if number else 0
            end = places[number] if number < len(places) else len(self.passes)
            before = self._until(module, number - 1, kept) if number else module
            steps = list(self.passes[begin:end])
            if number and isinstance(first := steps[0], LoopPass):
                steps[0] = replace(first, kept=kept[number - 1])
            self._made[key] = self.run(before, steps)
        return self._made[key]
