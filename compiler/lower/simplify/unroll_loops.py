"""Unroll loops: one that never runs is its initial value, one that runs once is its body, a tiny one is spelled out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from shardc.costs.kernels.trips import trip_count
from shardc.hlo.ir.ir import (
    Computation,
    Instruction,
    Module,
    called_computations,
    has_side_effect,
    rebuild_computation,
    rebuild_computations,
)
from shardc.hlo.ir.make import inline, keep_reachable
from shardc.hlo.ir.opset import COLLECTIVES
from shardc.hlo.simplify.eliminate_dead import live_part

__all__ = ["UnrollLoops"]

#: What is no work of its own in a body.
_FREE = frozenset({"parameter", "constant", "get-tuple-element", "tuple", "broadcast", "reshape", "bitcast", "iota"})
#: Every execution of these gives another value, so that one instruction cannot stand for two iterations.
_DRAWS = frozenset({"rng", "rng-get-and-update-state"})


@dataclass(frozen=True, slots=True)
class UnrollLoops:
    """Loops with a known number of iterations whose bodies hold, all together, at most ``limit`` operations.

    Loops that run once or never go whatever they hold; none with side effects, since these would move.
    """

    name: str = "unroll-loops"
    why: str = "without the loop, iterations fuse with each other and with what is around them"
    limit: int = 24
    looks_at: ClassVar[frozenset[str]] = frozenset({"while"})

    def run(self, module: Module) -> Module:
        after = rebuild_computations(module, self._unrolled)
        return module if after is module else keep_reachable(after, after.entry)

    def _unrolled(self, computation: Computation, called: Mapping[Computation, Computation]) -> Computation:
        if not any(i.opcode == "while" for i in computation):
            return rebuild_computation(computation, None, called)

        def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
            if old.opcode != "while":
                return None
            attrs = {k: called.get(v, v) if isinstance(v, Computation) else v for k, v in old.attrs.items()}
            loop = old.replace(operands=operands, attrs=attrs)
            trips = None if has_side_effect(loop) else trip_count(loop)
            if trips is None or not self._worth(loop.attrs["body"], trips):
                return None
            state = operands[0]
            for _ in range(trips):
                state = inline(loop.attrs["body"], (state,))
            return state

        return live_part(rebuild_computation(computation, change, called))

    def _worth(self, body: Computation, trips: int) -> bool:
        if trips <= 1:
            return True
        work = [i for i in body if i.opcode not in _FREE]
        plain = all(i.opcode not in COLLECTIVES | _DRAWS and not _runs_programs(i) for i in work)
        return plain and trips * len(work) <= self.limit


def _runs_programs(i: Instruction) -> bool:
    return i.opcode == "custom-call" or any(role != "to_apply" for role, _ in called_computations(i))
