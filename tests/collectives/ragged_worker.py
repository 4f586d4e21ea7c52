"""Runs on every rank of a job: random programs of ragged exchanges against NumPy.

Arguments: how many programs, "wrong" (rank 1 gives tables that do not fit), "outside" (of its data), or "busy" (tables
are overwritten as soon as a rank may); and "shared" for ranks of one node, or the node of each rank, such as 0,0,1,1,
or nothing: each rank is a node of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from mpi4py import MPI

from shardc.collectives.call.call import BufferRef
from shardc.collectives.call.transport import Transport
from shardc.collectives.mpi.transport import MpiTransport
from shardc.native.drive.drive_loop import PERFORM_TYPE, WHOLE
from shardc.native.threads.pool import Row, pool, pool_object
from tests.collectives.mpi_worker import LIMITS, nodes_of
from tests.collectives.oracle import DeviceMemory, perform
from tests.collectives.ragged_cases import RaggedCase, assert_ragged, ragged_case, ragged_memory, sent_bytes
from tests.collectives.shared_worker import SMALLS, memory_of, order_of, transport_of

GROUPS = (
    ((0, 1, 2, 3),),
    ((0, 2), (3, 1)),
    ((1,), (0,), (2,), (3,)),
    ((2, 0, 1), (5, 4, 3)),
    ((7, 1, 2, 3, 0, 4, 5, 6),),
)


class Counting(Protocol):
    def row_bytes(self) -> Mapping[int, float]: ...


class Seen:
    """A transport that remembers its last executor."""

    executor: Counting

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)

    def connect(self, *arguments: Any, **options: Any) -> Any:
        self.executor = made = self.transport.connect(*arguments, **options)
        return made


def program(seed: int) -> list[RaggedCase]:
    """Some exchanges one after another in the arena, or of arguments and results."""
    rng = np.random.default_rng(seed)
    groups = GROUPS[int(rng.integers(len(GROUPS)))]
    cases, base = [], 0
    for number in range(int(rng.integers(1, 4))):
        case = ragged_case(
            seed * 5 + number, groups, str(rng.choice(["f32", "bf16", "pred", "f64"])), int(rng.integers(0, 60)),
            per_peer=int(rng.integers(1, 4)), rows=int(rng.choice([9, 200])), index=number,
            in_place=bool(rng.random() < 0.5), asynchronous=bool(rng.random() < 0.5),
        )  # fmt: skip
        outside = rng.random() < 0.3
        operands = []
        for n, o in enumerate(case.call.operands):
            first, second = (replace(r, offset=r.offset + base) for r in (o.operand, o.result))
            if outside:
                first = BufferRef("argument", 10 * number + n, 0, first.nbytes)
                second = first if o.operand == o.result else BufferRef("result", 10 * number + n, 0, second.nbytes)
            operands.append(replace(o, operand=first, result=second if n == 1 else o.result))
        base += 64 + max(r.offset + r.nbytes for o in case.call.operands for r in (o.operand, o.result)) // 64 * 64
        cases.append(replace(case, call=replace(case.call, operands=tuple(operands))))
    return cases


def run(transports: Sequence[Transport], seed: int) -> int:
    """A program, two steps of it, on one of the transports; returns how many devices were compared."""
    cases = program(seed)
    devices = cases[0].num_devices
    if devices < MPI.COMM_WORLD.size:
        return 0
    rng = np.random.default_rng(seed + 1)
    transport = Seen(transports[int(rng.integers(len(transports)))])
    calls = [c.call for c in cases]
    order = order_of(calls, rng)
    mine = transport.ownership(devices).devices(transport.process_index)
    own = np.random.default_rng(seed * 100 + transport.process_index)
    as_cases: list[Any] = [_WithOperands(c) for c in cases]
    memories = {d: memory_of(as_cases, d, transport, own) for d in mine}

    def look() -> None:
        for case in cases:
            for d in mine:
                assert_ragged(case, d, memories[d])

    perform(transport, calls, devices, memories, order * 2, look=look)
    told = MPI.COMM_WORLD.allgather((dict(transport.executor.row_bytes()), len(mine)))
    for case in cases:
        whole = sum(counts[case.call.index] * owned for counts, owned in told) / devices
        np.testing.assert_allclose(whole, 2 * sent_bytes(case))
    return len(mine) * len(cases)


class _WithOperands:
    """A case as `memory_of` takes it."""

    def __init__(self, case: RaggedCase) -> None:
        self.call, self.operands = case.call, case.values


def wrong(transport: Transport, what: str) -> None:
    """Rank 1 says something that does not fit."""
    case = ragged_case(3, GROUPS[0], "f32", 300)
    for table in range(2, 6):
        for v in case.values:
            v[table][:] = 0
    if what == "wrong":
        case.values[1][3][2] = 4
    else:
        case.values[1][2][2] = 1 << 40
    memory = memory_of([_WithOperands(case)], transport.process_index, transport, np.random.default_rng(0))  # type: ignore[list-item]
    perform(transport, [case.call], 4, {transport.process_index: memory}, order=[(0, WHOLE)])


def busy(transport: Transport) -> None:
    """Ranks that are done make their tables useless at once, many times; others may still be looking at them."""
    case = ragged_case(5, GROUPS[0], "f32", 300)
    me = transport.process_index
    usual = ragged_memory(case, me)
    memory = DeviceMemory(transport.empty(usual.arena.nbytes), (), (), usual.constants)
    row = (Row * 1)(Row(memory.arena.ctypes.data, 0, 0, memory.constants.ctypes.data, me, 0))
    executor = transport.connect([case.call], transport.ownership(4), row, pool(pool_object()))
    function = PERFORM_TYPE(executor.function)
    for _ in range(400):
        for o, value in zip(case.call.operands, case.values[me], strict=True):
            memory.view(o.operand, o.dtype)[...] = value
        while (answer := function(executor.state, 0, WHOLE, 50_000_000)) == 1:
            executor.tick()
        if answer:
            raise executor.failure(answer, 0)
        for o in case.call.operands[2:]:
            memory.view(o.operand, o.dtype)[...] = -1
        assert_ragged(case, me, memory)
    executor.close()


def main() -> None:
    what, where = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    transports: list[Transport]
    if where == "shared":
        first = transport_of(SMALLS[0], helper=True)
        transports = [first, *(transport_of(s, node=first.node) for s in SMALLS[1:])]
    else:
        nodes = nodes_of(where)
        transports = [MpiTransport(MPI.COMM_WORLD, timeout=100, limits=m, nodes=nodes) for m in LIMITS]
    if what == "busy":
        for transport in transports:
            busy(transport)
        return
    if not what.isdigit():
        wrong(transports[0], what)
        return
    done = sum(run(transports, seed) for seed in range(int(what)))
    total = MPI.COMM_WORLD.reduce(done, root=0)
    if MPI.COMM_WORLD.rank == 0:
        print(f"compared {total} devices", flush=True)


if __name__ == "__main__":
    main()
