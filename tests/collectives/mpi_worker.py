"""Runs on every rank of a job: random collectives by `MpiTransport` against the oracle and `LocalTransport`."""

from __future__ import annotations

import sys

import numpy as np
from mpi4py import MPI

from shardc.collectives.engine import Limits
from shardc.collectives.local import LocalTransport
from shardc.collectives.mpi import MpiTransport
from tests.collectives.oracle import AXES, OPS, assert_same, expected, make_case, memory_for

LIMITS = [Limits(), Limits(chunk=256, small=0), Limits(small=-(1 << 30)), Limits(chunk=1 << 20, small=64)]
DTYPES = ["f32", "bf16", "f64", "s32", "u8", "c64", "pred"]


def run(transports: list[MpiTransport], seed: int) -> int:
    """One random case on every transport; returns how many devices were compared."""
    rng = np.random.default_rng(seed)
    axes = int(rng.integers(len(AXES)))
    ranks = transports[0].process_count
    while AXES[axes][0].size < ranks:
        axes = int(rng.integers(len(AXES)))
    op = OPS[int(rng.integers(len(OPS)))]
    dtypes = tuple(rng.choice(DTYPES, int(rng.integers(1, 4))).tolist())
    case = make_case(seed, op, axes, dtypes, int(rng.integers(0, 50)))
    transport = transports[int(rng.integers(len(transports)))]
    mine = transport.ownership(case.num_devices).devices(transport.process_index)
    memories = {d: memory_for(case, d) for d in mine}
    (prepared,) = transport.prepare([case.call], case.num_devices)
    transport.perform(prepared, memories)
    local = LocalTransport()
    everyone = {d: memory_for(case, d) for d in range(case.num_devices)}
    local.perform(local.prepare([case.call], case.num_devices)[0], everyone)
    want = expected(case)
    for d in mine:
        assert_same(case, d, memories[d], want[d])
        assert memories[d].arena.tobytes() == everyone[d].arena.tobytes()
    return len(mine)


def diverge() -> None:
    """Odd ranks are in another collective over the same groups."""
    transport = MpiTransport(MPI.COMM_WORLD, timeout=100)
    me = transport.process_index
    cases = [make_case(1, "all-reduce", 7, ("f32",), n, index=index) for index, n in ((0, 5), (1, 3000))]
    prepared = transport.prepare([c.call for c in cases], 4)
    transport.perform(prepared[me % 2], {me: memory_for(cases[me % 2], me)})


def main() -> None:
    if sys.argv[1] == "diverge":
        diverge()
        return
    transports = [MpiTransport(MPI.COMM_WORLD, timeout=100, limits=limits) for limits in LIMITS]
    rank, ranks = transports[0].process_index, transports[0].process_count
    done = sum(run(transports, seed) for seed in range(int(sys.argv[1])))
    assert transports[1].exchange_objects({"rank": rank, "pad": "x" * 100 * rank}) == [
        {"rank": r, "pad": "x" * 100 * r} for r in range(ranks)
    ]
    total = MPI.COMM_WORLD.reduce(done, root=0)
    if rank == 0:
        print(f"compared {total} devices", flush=True)


if __name__ == "__main__":
    main()
