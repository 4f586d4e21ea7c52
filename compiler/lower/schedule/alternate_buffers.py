"""Alternate buffers: merge several iterations of a loop that would otherwise copy its state back.

An iteration may read its state at other positions than it writes (a stencil), or rotate parts of it (the last two steps
of leapfrog). Then it cannot write the new state over the old one. It writes to another buffer, and the next iteration
writes to the first buffer again. So two or three iterations together need no copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from shardc.compiler.lower.buffers.assign_buffers import assign_buffers
from shardc.compiler.lower.buffers.linearise import linearise_part
from shardc.compiler.lower.lowered import BufferCopy, leaf_steps
from shardc.compiler.lower.schedule.step_traffic import step_traffic
from shardc.costs.kernels.trips import trip_count
from shardc.hlo.ir.ir import (
    Computation,
    Instruction,
    Module,
    has_side_effect,
    rebuild_computation,
    rebuild_computations,
)
from shardc.hlo.ir.make import inline, keep_reachable
from shardc.hlo.simplify.eliminate_dead import live_part

__all__ = ["AlternateBuffers"]


@dataclass(frozen=True, slots=True)
class AlternateBuffers:
    """Merge up to ``most`` iterations of loops with a known trip count, in bodies of up to ``limit`` instructions.

    Copies of the state must be at least the share ``least`` of the bytes that an iteration moves. The merged loop may
    need no more memory.
    """

    name: str = "alternate-buffers"
    why: str = "loop state alternates between two buffers instead of being copied back"
    most: int = 3
    limit: int = 2000
    least: float = 1 / 16
    looks_at: ClassVar[frozenset[str]] = frozenset({"while"})

    def run(self, module: Module) -> Module:
        after = rebuild_computations(module, self._alternated)
        return module if after is module else keep_reachable(after, after.entry)

    def _alternated(self, computation: Computation, called: Mapping[Computation, Computation]) -> Computation:
        changed = False

        def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
            nonlocal changed
            if old.opcode != "while":
                return None
            inside = {k: called[old.attrs[k]] for k in ("condition", "body")}
            several = self._several(old.replace(operands=operands, attrs={**old.attrs, **inside}))
            changed |= several is not None
            return several

        new = rebuild_computation(computation, change, called)
        return live_part(new) if changed else new

    def _several(self, loop: Instruction) -> Instruction | None:
        """The loop with several iterations in its body, after the remaining iterations; None if it stays unchanged."""
        trips, body = trip_count(loop), loop.attrs["body"]
        if trips is None or trips < 2 * self.most or has_side_effect(loop):
            return None
        alone = _Judged.of(body)
        if alone.copied < self.least * alone.moved:
            return None
        for times in range(2, self.most + 1):
            longer = _repeated(body, times)
            if len(longer.instructions) > self.limit:
                break
            judged = _Judged.of(longer)
            if judged.copied < self.least * judged.moved and judged.arena_bytes <= alone.arena_bytes * (1 + self.least):
                (state,) = loop.operands
                for _ in range(trips % times):
                    state = inline(body, (state,))
                told = f'{{"known_trip_count":{{"n":"{trips // times}"}}}}'
                return loop.replace(operands=(state,), attrs={**loop.attrs, "body": longer, "backend_config": told})
        return None


@dataclass(frozen=True, slots=True)
class _Judged:
    """The bytes that one run of a loop's body moves, the bytes of state copies among them, and the memory that it
    needs."""

    moved: int
    copied: int
    arena_bytes: int

    @staticmethod
    def of(body: Computation) -> _Judged:
        linear = linearise_part(body, carried=True).linear
        plan = assign_buffers(linear)

        def moved(*kinds: type) -> int:
            steps = (s for s in leaf_steps(linear.steps) if not kinds or isinstance(s, kinds))
            return sum(t.read + t.written for t in (step_traffic(s, plan) for s in steps))

        return _Judged(moved(), moved(BufferCopy), plan.arena_bytes)


def _repeated(body: Computation, times: int) -> Computation:
    """The computation applied repeatedly to its own result, each time in its order."""
    (parameter,) = body.parameters
    state, out = parameter, [parameter]
    for _ in range(times):
        new = {parameter: state}
        for i in body:
            if i is parameter:
                continue
            if i.opcode == "get-tuple-element" and new[i.operands[0]].opcode == "tuple":
                new[i] = new[i.operands[0]].operands[i.attrs["index"]]
                continue
            new[i] = i.replace(operands=tuple(new[o] for o in i.operands))
            out.append(new[i])
        state = new[body.root]
    return live_part(Computation(body.name, out, state))
