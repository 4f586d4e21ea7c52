"""Runs an example, or the program by hand that it replaces; the last line is JSON: seconds and bytes of a step."""

from __future__ import annotations

import json
import runpy
import sys
from typing import Any

import numpy as np
from mpi4py import MPI


class CountingComm:
    """A communicator that counts what this rank sends, reductions as the best algorithm sends them."""

    def __init__(self, comm: Any) -> None:
        self.comm, self.sent = comm, 0.0
        self.rank, self.size = comm.rank, comm.size

    def Sendrecv(self, sendbuf: Any, dest: int, **options: Any) -> None:  # noqa: N802
        self.sent += sendbuf.nbytes if dest not in (MPI.PROC_NULL, self.rank) else 0
        self.comm.Sendrecv(np.ascontiguousarray(sendbuf), dest=dest, **options)

    def Allgatherv(self, sendbuf: Any, received: Any) -> None:  # noqa: N802
        self.sent += received[0].nbytes * (self.size - 1) / self.size
        self.comm.Allgatherv(sendbuf, received)

    def Allreduce(self, place: Any, values: Any) -> None:  # noqa: N802
        self.sent += 2 * values.nbytes * (self.size - 1) / self.size
        self.comm.Allreduce(place, values)

    def allreduce(self, value: Any, op: Any = MPI.SUM) -> Any:
        self.sent += 2 * np.asarray(value).nbytes * (self.size - 1) / self.size
        return self.comm.allreduce(value, op)

    def bcast(self, value: Any) -> Any:
        return self.comm.bcast(value)


def sent_by_shardc(script: dict[str, Any]) -> float:
    """What a device sends in a step, as planned; loops to a tolerance count once."""
    function = script.get("advance") or script["solve"]
    sent: float = function.program(*script["state"]).partition().report()["wire_bytes"]
    return sent / script["STEPS"] if "advance" in script else sent


def sent_by_hand(script: dict[str, Any]) -> float:
    """What the rank that sends the most has sent by step: the functions run once more, and are counted."""
    comm = script["comm"]
    before = comm.sent
    if "count" in script:
        start = (script["f"] * 0, script["f"]) if "f" in script else (script["b"],)
        script["solve"](*start)
        steps = script["count"]
    else:
        state = script.get("state") or (script.get("q", script.get("u", script.get("f"))),)
        script["advance"](*state)
        steps = script["STEPS"]
    return float(comm.comm.allreduce((comm.sent - before) / steps, MPI.MAX))


if __name__ == "__main__":
    world = MPI.COMM_WORLD
    sys.argv = sys.argv[1:]
    by_hand = "by_hand" in sys.argv[0]
    if by_hand:
        MPI.COMM_WORLD = CountingComm(world)  # type: ignore[misc, assignment]
    ran = runpy.run_path(sys.argv[0], run_name="__main__")
    sent = (sent_by_hand if by_hand else sent_by_shardc)(ran)
    if world.rank == 0:
        print(json.dumps({"seconds": ran["took"], "sent": sent}))
