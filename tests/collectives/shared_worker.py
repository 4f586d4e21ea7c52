"""Runs on every rank of a job of one node: random programs of collectives by `SharedMemoryExecutor` against the oracle.

Arguments: how many programs, or "diverge", "unfinished", "many", "sections".
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from shardc.collectives.call.call import BufferRef, CollectiveCall, SharedSection
from shardc.collectives.call.memory import aligned_bytes
from shardc.collectives.call.transport import Transport
from shardc.collectives.mpi.transport import MpiTransport
from shardc.collectives.shared_memory.executor import SharedMemoryExecutor
from shardc.collectives.shared_memory.heap import open_heaps
from shardc.collectives.shared_memory.node import ComputeNode, shared_code
from shardc.collectives.shared_memory.transport import SharedTransport
from shardc.native.drive.drive_loop import DONE_PHASE, START, WHOLE
from shardc.native.threads.pool import pool, pool_object
from tests.collectives.oracle import AXES, OPS, Case, DeviceMemory, assert_same, expected, make_case, perform

DTYPES = ["f32", "bf16", "f64", "s32", "u8", "c64", "pred"]
#: Bytes up to which operands are copied: never, the usual, always.
SMALLS = (-1, 1 << 12, 1 << 40)
WORLD = MPI.COMM_WORLD


def transport_of(small: int, *, helper: bool = False, node: ComputeNode | None = None) -> SharedTransport:
    """Ranks of one node; of ``node``'s heaps if given."""
    messages = MpiTransport(WORLD, timeout=100)
    heaps = open_heaps(WORLD.allgather, WORLD.size) if node is None else node.heaps
    assert not isinstance(heaps, str), heaps
    ranks = tuple(range(WORLD.size))
    return Watched(
        messages,
        ComputeNode(heaps, ranks, messages, shared_code(), spin=1000, cores=2, helper=helper),
        small=small,
    )


def program(seed: int) -> tuple[list[Case], list[SharedSection]]:
    """Some collectives over one mesh, one after another in the arena, some of arguments and results; and sections for
    some results that are the same for all of a group."""
    rng = np.random.default_rng(seed)
    axes = int(rng.choice([n for n, (mesh, _) in enumerate(AXES) if mesh.size >= WORLD.size]))
    same = [n for n, (mesh, _) in enumerate(AXES) if mesh.size == AXES[axes][0].size]
    cases: list[Case] = []
    base = 0
    sections: list[SharedSection] = []
    for number in range(int(rng.integers(1, 6))):
        dtypes = tuple(rng.choice(DTYPES, int(rng.integers(1, 4))).tolist())
        op = OPS[int(rng.integers(len(OPS)))]
        most = 60 if rng.random() < 0.8 else 9000
        case = make_case(seed * 7 + number, op, int(rng.choice(same)), dtypes, int(rng.integers(0, most)), index=number)
        space = bool(rng.random() < 0.3)
        operands = []
        for n, o in enumerate(case.call.operands):
            first, second = (replace(r, offset=r.offset + base) for r in (o.operand, o.result))
            if space:
                first = BufferRef("argument", 10 * number + n, 0, first.nbytes)
                second = BufferRef("result", 10 * number + n, 0, second.nbytes)
            operands.append(replace(o, operand=first, result=second))
        base += max(o.result.offset + o.result.nbytes + 63 for o in case.call.operands) // 64 * 64
        call = replace(case.call, operands=tuple(operands), asynchronous=bool(rng.random() < 0.6))
        cases.append(Case(call, case.num_devices, case.operands))
    for n, case in enumerate(cases):
        call, wanted = case.call, rng.random() < 0.5
        if wanted and call.op in ("all-reduce", "all-gather") and call.operands[0].result.space == "arena":
            begin = base = -(-base // 4096) * 4096
            operands = []
            for o in call.operands:
                operands.append(replace(o, result=replace(o.result, offset=base)))
                base += -(-o.result.nbytes // 64) * 64
            sections.append(SharedSection(begin, base - begin, call.groups))
            cases[n] = Case(replace(call, operands=tuple(operands)), case.num_devices, case.operands)
    return cases, sections


def memory_of(cases: list[Case], device: int, transport: Transport, rng: np.random.Generator) -> DeviceMemory:
    """A device's memory with the operands in it, of the heap or of the process."""

    def block(nbytes: int, shared: float) -> np.ndarray:
        made = transport.empty(nbytes) if rng.random() < shared else aligned_bytes(nbytes)
        made[:] = 0xAB
        return made

    refs = [r for c in cases for o in c.call.operands for r in (o.operand, o.result)]
    arena = block(max((r.offset + r.nbytes for r in refs if r.space == "arena"), default=0) + (1 << 16), 0.8)
    tables: dict[str, list[np.ndarray]] = {}
    for space in ("argument", "result"):
        sizes = {r.index: r.nbytes for r in refs if r.space == space}
        tables[space] = [block(sizes.get(n, 0), 0.5) for n in range(1 + max(sizes, default=-1))]
    memory = DeviceMemory(arena, tables["argument"], tables["result"], aligned_bytes(0))
    for case in cases:
        for o, value in zip(case.call.operands, case.operands[device], strict=True):
            memory.view(o.operand, o.dtype)[...] = value
    return memory


def order_of(calls: list[CollectiveCall], rng: np.random.Generator) -> list[tuple[int, int]]:
    """Starts in the program's order, each done some time after its start."""
    order: list[tuple[int, int]] = []
    started: list[int] = []
    for n, call in enumerate(calls):
        while started and rng.random() < 0.3:
            order.append((started.pop(int(rng.integers(len(started)))), DONE_PHASE))
        order.append((n, START if call.asynchronous else WHOLE))
        started += [n] * call.asynchronous
    return order + [(n, DONE_PHASE) for n in rng.permutation(started).tolist()]


def run(transports: Sequence[Transport], seed: int) -> int:
    """One program, two steps of it, on one of the transports; returns how many devices were compared."""
    cases, sections = program(seed)
    calls = [c.call for c in cases]
    rng = np.random.default_rng(seed + 1)
    transport = transports[int(rng.integers(len(transports)))]
    order = order_of(calls, rng)
    mine = transport.ownership(cases[0].num_devices).devices(transport.process_index)
    own = np.random.default_rng(seed * 100 + transport.process_index)
    memories = {d: memory_of(cases, d, transport, own) for d in mine}

    def look() -> None:
        for case in cases:
            want = expected(case)
            for d in mine:
                assert_same(case, d, memories[d], want[d])

    perform(transport, calls, cases[0].num_devices, memories, order * 2, sections, look)
    return len(mine) * len(cases)


def diverge() -> None:
    """Odd ranks are in another collective over the same groups."""
    transport = transport_of(0)
    me = transport.process_index
    cases = [make_case(1, "all-reduce", 7, ("f32",), n, index=index) for index, n in ((0, 5), (1, 3000))]
    memory = DeviceMemory(transport.empty(30_000), (), (), aligned_bytes(0))
    perform(transport, [c.call for c in cases], 4, {me: memory}, order=[(me % 2, WHOLE)])


def unfinished() -> None:
    """A collective is started twice and never done."""
    transport = transport_of(0)
    call = replace(make_case(1, "all-reduce", 7, ("f32",), 5).call, asynchronous=True)
    memory = DeviceMemory(transport.empty(3000), (), (), aligned_bytes(0))
    perform(transport, [call], 4, {transport.process_index: memory}, order=[(0, START), (0, START)])


class Watched(SharedTransport):
    """Remembers the last executor."""

    executor: SharedMemoryExecutor

    def connect(self, *arguments: Any, **options: Any) -> SharedMemoryExecutor:
        self.executor = super().connect(*arguments, **options)
        return self.executor


def check_transfers(transport: SharedTransport, calls: list[CollectiveCall], times: int) -> None:
    """What was started and done was counted."""
    assert isinstance(transport, Watched)
    found = transport.executor.transfers()
    assert {n: count for n, (count, _) in found.items()} == {c.index: times for c in calls if c.asynchronous}
    assert all(0 < ns < 60e9 for _, ns in found.values())


def many() -> None:
    """More collectives under way than a channel has slots; memory and threads of programs come back."""
    transport = transport_of(0, helper=True)
    cases = [make_case(n, "all-reduce", 7, ("f32",), 3000 + n, index=n) for n in range(40)]
    calls = []
    for n, case in enumerate(cases):
        (o,) = case.call.operands
        moved = replace(o, operand=BufferRef("argument", n, 0, o.operand.nbytes))
        moved = replace(moved, result=BufferRef("result", n, 0, o.result.nbytes))
        calls.append(replace(case.call, operands=(moved,), asynchronous=n % 3 > 0))
        cases[n] = replace(case, call=calls[n])
    order = [(n, START if c.asynchronous else WHOLE) for n, c in enumerate(calls)]
    order += [(n, DONE_PHASE) for n, c in enumerate(calls) if c.asynchronous]
    used = []
    me = transport.process_index
    for _ in range(4):
        memory = memory_of(cases, me, transport, np.random.default_rng(me))
        perform(transport, calls, 4, {me: memory}, order * 3, look=partial(check_transfers, transport, calls, 3))
        for case in cases:
            assert_same(case, me, memory, expected(case)[me])
        del memory
        WORLD.Barrier()
        transport.node.heap.release(transport.node.heap.take(64), 64)
        used.append(transport.node.heap.used)
    assert len(set(used)) == 1, used


def sections() -> None:
    """A result in a section is one memory; the arenas have their own again when the program is closed. Enough for
    threads to take part."""
    pool(pool_object()).configure(2, 0)
    transport = transport_of(0)
    me, n = transport.process_index, 400_000
    case = make_case(1, "all-reduce", 7, ("f32",), n)
    (o,) = case.call.operands
    section = SharedSection(1 << 21, 4 * n, case.call.groups)
    moved = replace(o, result=BufferRef("arena", 0, section.offset, 4 * n))
    case = Case(replace(case.call, operands=(moved,)), 4, case.operands)
    for _ in range(3):
        memory = DeviceMemory(transport.empty(1 << 22), (), (), aligned_bytes(0))
        memory.view(moved.operand, moved.dtype)[...] = case.operands[me][0]
        result = memory.view(moved.result, moved.dtype)

        def look(memory: DeviceMemory = memory, result: np.ndarray = result) -> None:
            assert_same(case, me, memory, expected(case)[me])
            WORLD.Barrier()
            if me == 2:
                result[:] = 42
            WORLD.Barrier()
            assert (result == 42).all()

        perform(transport, [case.call], 4, {me: memory}, sections=[section], look=look)
        result[:] = me
        WORLD.Barrier()
        assert (result == me).all()
        del memory, result, look
        WORLD.Barrier()
        transport.node.heap.release(transport.node.heap.take(64), 64)
        assert transport.node.heap.used == 0


def main() -> None:
    special = {"diverge": diverge, "unfinished": unfinished, "many": many, "sections": sections}
    if sys.argv[1] in special:
        special[sys.argv[1]]()
        total = WORLD.size
    else:
        first = transport_of(SMALLS[0])
        transports = [first, *(transport_of(s, node=first.node) for s in SMALLS[1:])]
        transports += [transport_of(s, node=first.node, helper=True) for s in SMALLS[:2]]
        total = WORLD.allreduce(sum(run(transports, seed) for seed in range(int(sys.argv[1]))))
    if WORLD.rank == 0:
        print(f"compared {total} devices", flush=True)


if __name__ == "__main__":
    main()
