"""The steps of all processes of a job, gone through by a small machine in Python, against what collectives mean."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.collectives.call.membership import Ownership, members_of
from shardc.collectives.engine.plan_messages import MessageLimits, MessagePlan, Topology, plan_messages
from shardc.collectives.engine.steps import (
    ArriveStep,
    AwaitArrivalStep,
    CheckHeaderStep,
    CopyBytesStep,
    HeaderStep,
    MessageStep,
    ReceiveStep,
    ReduceStep,
    SendStep,
    StepPlace,
    WaitStep,
    ZeroStep,
)
from shardc.collectives.engine.subtrees import Subtree, combine, subtrees
from shardc.hlo.ir.groups import ListGroups
from tests.collectives.oracle import AXES, OPS, Case, DeviceMemory, assert_same, expected, make_case, memory_for, tree

LIMITS = [
    MessageLimits(),
    MessageLimits(message=96, packed=64, whole=0),
    MessageLimits(whole=1 << 40),
    MessageLimits(packed=0, whole=-(1 << 40)),
]


class Machine:
    """Processes that take turns at random; each can reach the memory of its node only."""

    def __init__(self, case: Case, topology: Topology, limits: MessageLimits, rng: np.random.Generator) -> None:
        self.case = case
        self.topology = topology
        self.rng = rng
        self.memories = {d: memory_for(case, d) for d in range(case.num_devices)}
        members = members_of(case.call, case.num_devices)
        together = [topology.node.count(n) > 1 for n in topology.node]
        self.plans = [
            plan_messages(case.call, members, topology, p, limits, together=together[p])
            for p in range(len(topology.node))
        ]
        self.scratch = [np.full(plan.scratch, 0xEE, np.uint8) for plan in self.plans]
        self.wires: dict[tuple[int, int, int], deque[bytes]] = defaultdict(deque)
        self.arrived = [[False, False] for _ in topology.node]

    def run(self) -> None:
        running = {p: self.process(p, plan) for p, plan in enumerate(self.plans)}
        idle = 0
        while running:
            p = int(self.rng.choice(list(running)))
            try:
                idle = 0 if next(running[p]) else idle + 1
            except StopIteration:
                del running[p]
                idle = 0
            assert idle < 1000, "nobody can go on"
        assert not any(self.wires.values()), "a message that nobody took"

    def process(self, me: int, plan: MessagePlan) -> Iterator[bool]:
        """Goes through a plan; yields whether it did something."""
        posted: list[ReceiveStep] = []
        for step in plan.steps:
            if isinstance(step, ReceiveStep):
                posted.append(step)
            elif isinstance(step, WaitStep):
                for r in posted:
                    wire = self.wires[r.process, me, r.kind]
                    while not wire:
                        yield False
                    data = wire.popleft()
                    assert len(data) <= r.nbytes
                    self.bytes(me, r.place, len(data))[:] = np.frombuffer(data, np.uint8)
                posted = []
            elif isinstance(step, AwaitArrivalStep):
                mates = [p for p, n in enumerate(self.topology.node) if n == self.topology.node[me]]
                while not all(self.arrived[p][step.last] for p in mates):
                    yield False
            else:
                self.do(me, step)
            yield True

    def do(self, me: int, step: MessageStep) -> None:
        match step:
            case ArriveStep(last):
                self.arrived[me][last] = True
            case HeaderStep(place):
                self.bytes(me, place, 64)[:] = 7
            case CheckHeaderStep(_, place):
                assert (self.bytes(me, place, 64) == 7).all()
            case SendStep(process, place, nbytes, kind):
                assert self.topology.node[process] != self.topology.node[me]
                self.wires[me, process, kind].append(self.bytes(me, place, nbytes).tobytes())
            case CopyBytesStep(source, targets, nbytes):
                for t in targets:
                    self.bytes(me, t, nbytes)[:] = self.bytes(me, source, nbytes)
            case ZeroStep(target, nbytes):
                self.bytes(me, target, nbytes)[:] = 0
            case ReduceStep(index, sources, targets, count):
                dtype = self.case.call.operands[index].dtype
                nbytes = count * dtype.nbytes
                views = [self.bytes(me, s, nbytes).view(dtype.numpy) for s in sources]
                total = tree(self.case.call.reduction, dtype, views)
                for t in targets:
                    self.bytes(me, t, nbytes)[:] = total.view(np.uint8)

    def bytes(self, me: int, place: StepPlace, nbytes: int) -> np.ndarray:
        if place.space == "scratch":
            block = self.scratch[me]
        else:
            assert self.topology.node[self.topology.owner[place.device]] == self.topology.node[me]
            o = self.case.call.operands[place.index]
            ref = o.operand if place.space == "operand" else o.result
            memory: DeviceMemory = self.memories[place.device]
            block = memory.arena[ref.offset : ref.offset + ref.nbytes]
        assert 0 <= place.offset <= place.offset + nbytes <= block.size
        return block[place.offset : place.offset + nbytes]


def check(case: Case, node: list[int], limits: MessageLimits, seed: int) -> Machine:
    owner = Ownership(case.num_devices, len(node)).table()
    machine = Machine(case, Topology(tuple(owner.tolist()), tuple(node)), limits, np.random.default_rng(seed))
    machine.run()
    want = expected(case)
    for d, memory in machine.memories.items():
        assert_same(case, d, memory, want[d])
    return machine


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.integers(0, 10_000),
    st.sampled_from(OPS),
    st.integers(0, len(AXES) - 1),
    st.lists(st.sampled_from(["f32", "bf16", "s32", "u8", "c64", "pred"]), min_size=1, max_size=3),
    st.one_of(st.integers(0, 40), st.integers(4000, 6000)),
    st.sampled_from(LIMITS),
    st.lists(st.integers(0, 3), min_size=1, max_size=8),
)
def test_random(
    seed: int, op: str, axes: int, dtypes: list[str], n: int, limits: MessageLimits, node: list[int]
) -> None:
    case = make_case(seed, op, axes, tuple(dtypes), n if limits.message > 96 else min(n, 40))
    check(case, node[: case.num_devices], limits, seed)


def test_an_all_reduce_sends_the_fewest_bytes() -> None:
    case = make_case(1, "all-reduce", 4, ("f32",), 1 << 15)
    case.call = replace(case.call, groups=ListGroups((tuple(range(8)),)))
    for node, sent in (([0, 1, 2, 3, 4, 5, 6, 7], 7 / 8), ([0, 0, 0, 0, 1, 1, 1, 1], 1 / 2 / 4)):
        machine = check(case, node, MessageLimits(packed=0), 3)
        for plan in machine.plans:
            bodies = sum(s.nbytes for s in plan.steps if isinstance(s, SendStep) and s.kind)
            assert bodies == 2 * (1 << 17) * sent


def test_scratch_memory_is_bounded_by_the_operand() -> None:
    case = make_case(1, "all-reduce", 4, ("f32",), 1 << 16)
    for plan in check(case, list(range(8)), MessageLimits(packed=1024), 3).plans:
        assert plan.scratch <= (1 << 18) + 8 * 5000


@pytest.mark.parametrize("owners", [[0, 0, 0, 1, 1, 1], [0] * 7, [0, 1, 0, 1, 0], [0, 0, 0, 0, 1, 2, 2], [3]])
def test_subtrees_give_the_value_of_the_whole_tree(owners: list[int]) -> None:
    def tree(values: list[str]) -> str:
        while len(values) > 1:
            pairs = [f"({a} {b})" for a, b in zip(values[::2], values[1::2], strict=False)]
            values = pairs + values[len(pairs) * 2 :]
        return values[0]

    names = [str(p) for p in range(len(owners))]
    parts = [(s, tree(names[s.lo : s.lo + s.width])) for s in subtrees(owners)]
    assert tree(list(combine(parts, lambda pair: tree(list(pair))))) == tree(names)


def test_subtrees_are_as_large_as_they_can_be() -> None:
    assert subtrees([0, 0, 0, 1, 1, 1]) == [Subtree(0, 2, 0), Subtree(2, 1, 0), Subtree(3, 1, 1), Subtree(4, 4, 1)]
    assert subtrees([0, 0], partial=False) == [Subtree(0, 1, 0), Subtree(1, 1, 0)]
