"""Runs on every rank of a job: random collectives by `MpiTransport` against the oracle.

Arguments: how many cases, or "diverge"; and the node of each rank, such as 0,0,1,1, or "hosts", where ranks are not
nodes of their own.
"""

from __future__ import annotations

import socket
import sys
from functools import cache

import numpy as np
from mpi4py import MPI

from shardc.collectives.engine.plan_messages import MessageLimits
from shardc.collectives.mpi.transport import MpiTransport, Nodes
from shardc.collectives.shared_memory.heap import open_heaps
from shardc.collectives.shared_memory.node import ComputeNode, shared_code
from shardc.native.drive.drive_loop import WHOLE
from tests.collectives.oracle import AXES, OPS, assert_same, expected, make_case, memory_for, perform
from tests.collectives.shared_worker import run as run_program

LIMITS = [
    MessageLimits(),
    MessageLimits(message=100, packed=32, whole=0),
    MessageLimits(whole=1 << 40),
    MessageLimits(packed=0, whole=-(1 << 30)),
]
DTYPES = ["f32", "bf16", "f64", "s32", "u8", "c64", "pred"]


def run(transports: list[MpiTransport], seed: int) -> int:
    """One random case on one of the transports; returns how many devices were compared."""
    rng = np.random.default_rng(seed)
    axes = int(rng.integers(len(AXES)))
    ranks = transports[0].process_count
    while AXES[axes][0].size < ranks:
        axes = int(rng.integers(len(AXES)))
    op = OPS[int(rng.integers(len(OPS)))]
    dtypes = tuple(rng.choice(DTYPES, int(rng.integers(1, 4))).tolist())
    most = 50 if rng.random() < 0.9 else 20_000
    case = make_case(seed, op, axes, dtypes, int(rng.integers(0, most)))
    transport = transports[int(rng.integers(len(transports)))]
    mine = transport.ownership(case.num_devices).devices(transport.process_index)
    memories = {d: memory_for(case, d) for d in mine}
    perform(transport, [case.call], case.num_devices, memories)
    want = expected(case)
    for d in mine:
        assert_same(case, d, memories[d], want[d])
        untouched = memory_for(case, d)
        for o, value in zip(case.call.operands, want[d], strict=True):
            untouched.view(o.result, o.dtype)[...] = value.astype(o.dtype.numpy)
        assert memories[d].arena.tobytes() == untouched.arena.tobytes()
    return len(mine)


@cache
def group_of(job: MpiTransport, members: tuple[int, ...]) -> MpiTransport:
    """One for each group, as the plug-in has them: MPI has some 2,000 communicators."""
    return job.among(members)


def run_group(transports: list[MpiTransport], seed: int) -> int:
    """One random case among some of the ranks, of which this may be none."""
    rng = np.random.default_rng(seed)
    job = transports[int(rng.integers(len(transports)))]
    count = int(rng.integers(2, job.process_count + 1))
    members = sorted(rng.choice(job.process_count, count, replace=False).tolist())
    if job.process_index not in members:
        return 0
    group = group_of(job, tuple(members))
    assert (group.ranks, group.job) == (tuple(members), job)
    found = group.exchange_objects(job.process_index)
    assert found == members, found
    return run([group], seed)


def nodes_of(numbers: str) -> Nodes | None:
    """Ranks with equal numbers share memory."""
    if not numbers:
        return None
    if numbers == "hosts":
        names = MPI.COMM_WORLD.allgather(socket.gethostname())
        by_rank = tuple(names.index(name) for name in names)
    else:
        by_rank = tuple(int(n) for n in numbers.split(","))
    rank = MPI.COMM_WORLD.Get_rank()
    ranks = tuple(r for r, n in enumerate(by_rank) if n == by_rank[rank])
    near = MpiTransport(MPI.COMM_WORLD.Split(by_rank[rank], rank), timeout=100)
    heaps = open_heaps(near.exchange_objects, len(ranks))
    assert not isinstance(heaps, str), heaps
    return Nodes(by_rank, ComputeNode(heaps, ranks, near, shared_code(), spin=0, cores=1))


def diverge(nodes: Nodes | None) -> None:
    """Odd ranks are in another collective over the same groups."""
    transport = MpiTransport(MPI.COMM_WORLD, timeout=100, nodes=nodes)
    me = transport.process_index
    cases = [make_case(1, "all-reduce", 7, ("f32",), n, index=index) for index, n in ((0, 5), (1, 3000))]
    memory = memory_for(cases[me % 2], me)
    perform(transport, [c.call for c in cases], 4, {me: memory}, order=[(me % 2, WHOLE)])


def main() -> None:
    nodes = nodes_of(sys.argv[2] if len(sys.argv) > 2 else "")
    if sys.argv[1] == "diverge":
        diverge(nodes)
        return
    transports = [
        MpiTransport(MPI.COMM_WORLD, timeout=100, limits=limits, nodes=nodes, helper=limits.packed < 100)
        for limits in LIMITS
    ]
    rank, ranks = transports[0].process_index, transports[0].process_count
    ways = (run, run_program, run_group)
    done = sum(way(transports, seed) for seed in range(int(sys.argv[1])) for way in ways)
    assert transports[1].exchange_objects({"rank": rank, "pad": "x" * 100 * rank}) == [
        {"rank": r, "pad": "x" * 100 * r} for r in range(ranks)
    ]
    total = MPI.COMM_WORLD.reduce(done, root=0)
    if rank == 0:
        print(f"compared {total} devices on {len(set(nodes.by_rank)) if nodes else ranks} nodes", flush=True)


if __name__ == "__main__":
    main()
