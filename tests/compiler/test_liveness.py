"""Live ranges of nested loops and branches, against data flow over the graph; their cost does not explode."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from shardc.compiler.lower.buffers.liveness import Liveness, live_ranges
from shardc.compiler.lower.lowered import BranchStep, Buffer, BufferCopy, Step, WhileStep
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import array_shape

NOBODY = Instruction("while", array_shape("pred"))


def grown(r: random.Random, buffers: Sequence[Buffer], depth: int) -> list[Step]:
    steps: list[Step] = []
    for _ in range(r.randint(1, 3)):
        kind = r.random() if depth else 1.0
        if kind < 0.3:
            condition = [BufferCopy(r.choice(buffers), r.choice(buffers)) for _ in range(r.randint(0, 2))]
            steps.append(WhileStep(NOBODY, condition, r.choice(buffers), grown(r, buffers, depth - 1)))
        elif kind < 0.5:
            branches = [grown(r, buffers, depth - 1) for _ in range(r.randint(1, 3))]
            steps.append(BranchStep(NOBODY, r.choice(buffers), branches))
        else:
            steps.append(BufferCopy(r.choice(buffers), r.choice(buffers)))
    return steps


class Flow:
    """A graph of positions with what is read and written there, and which follow."""

    def __init__(self, positions: dict[Step, int], steps: Sequence[Step], outputs: Sequence[Buffer], end: int) -> None:
        self.positions = positions
        self.nodes: dict[int, tuple[set[Buffer], set[Buffer], list[int]]] = {end: (set(outputs), set(), [])}
        self.choices: set[int] = set()
        self.block(steps, end)

    def block(self, steps: Sequence[Step], then: int) -> int:
        """The first position of a block behind which ``then`` follows."""
        for step in reversed(steps):
            place = self.positions[step]
            if isinstance(step, WhileStep):
                self.choices.add(place)
                start = self.block(step.condition, place)
                self.nodes[place] = ({step.predicate}, set(), [self.block(step.body, start), then])
                then = start
            elif isinstance(step, BranchStep):
                self.choices.add(place)
                self.nodes[place] = ({step.selector}, set(), [self.block(b, then) for b in step.branches])
                then = place
            else:
                assert isinstance(step, BufferCopy)
                self.nodes[place] = ({step.source}, {step.target}, [then])
                then = place
        return then

    def live(self) -> dict[int, tuple[set[Buffer], set[Buffer]]]:
        """What is live before and after each position: the least fixed point."""
        before: dict[int, set[Buffer]] = {p: set() for p in self.nodes}
        while True:
            after = {p: set().union(*(before[s] for s in n[2])) for p, n in self.nodes.items()}
            new = {p: n[0] | (after[p] - n[1]) for p, n in self.nodes.items()}
            if new == before:
                return {p: (before[p], after[p]) for p in self.nodes}
            before = new


def masks(found: dict[Buffer, int]) -> dict[Buffer, int]:
    return {b: mask for b, mask in found.items() if mask}


@pytest.mark.parametrize("block", range(10))
def test_live_ranges_are_those_of_the_graph(block: int) -> None:
    for seed in range(30 * block, 30 * (block + 1)):
        r = random.Random(f"liveness {seed}")
        buffers = [Buffer(n, array_shape("f32", 4), name=f"b{n}") for n in range(r.randint(2, 7))]
        steps, outputs = grown(r, buffers, 3), r.sample(buffers, 2)
        found = live_ranges(steps, outputs)
        flow = Flow(found.positions, steps, outputs, found.end)
        expected: dict[Buffer, int] = {}
        for place, (before, after) in flow.live().items():
            for b in before:
                expected[b] = expected.get(b, 0) | 1 << (2 * place)
            for b in before if place in flow.choices else after:
                expected[b] = expected.get(b, 0) | 1 << (2 * place + 1)
        assert masks(found.live) == masks(expected), seed


def nested(depth: int) -> Liveness:
    x, y, p = (Buffer(n, array_shape("f32", 4)) for n in range(3))
    steps: list[Step] = [BufferCopy(x, y)]
    for _ in range(depth):
        steps = [WhileStep(NOBODY, [BufferCopy(y, p)], p, [BufferCopy(x, y), *steps, BufferCopy(y, x)])]
    return live_ranges(steps, [x])


def calls(depth: int) -> int:
    count = 0

    def counted(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(counted)
    try:
        nested(depth)
    finally:
        sys.setprofile(None)
    return count


def test_a_loop_within_a_loop_is_looked_at_once() -> None:
    """Not twice per loop around it: 40 loops deep that would be 2^40 times."""
    assert calls(40) <= 6 * calls(10)
