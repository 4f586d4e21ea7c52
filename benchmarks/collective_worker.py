"""Our collectives among four devices: seconds per call, printed by rank 0 as a line of JSON.

python benchmarks/collective_worker.py SECONDS [shared] OP:BYTES ...

Alone the devices are virtual ones of this process, in an MPI job of four they are ranks. With ``shared`` the members
see one result (of all-reduces and all-gathers), else each gets its own. The collective executor is called as the native
loop over a step's collectives calls it.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable

import numpy as np
from mpi_worker import seconds_per_call

from shardc.collectives.call.call import BufferRef, CollectiveCall, CollectiveOperand, SharedSection
from shardc.collectives.call.transport import Transport
from shardc.compiler.load.step import step_pool
from shardc.hlo.config import Config
from shardc.hlo.ir.groups import ListGroups, ListPairs
from shardc.hlo.ir.types import DTYPES
from shardc.launcher.jobs.job import job_transport, threads_per_process
from shardc.native.drive.drive_loop import PERFORM_TYPE, WHOLE
from shardc.native.llvm.target import host_target
from shardc.native.threads.pool import Row

DEVICES, PAGE = 4, 4096
GROUPS = ListGroups((tuple(range(DEVICES)),))
RING = ListPairs(tuple((d, (d + 1) % DEVICES) for d in range(DEVICES)))


def _call(op: str, nbytes: int) -> tuple[CollectiveCall, int]:
    """The collective on an arena, and the arena's bytes; ``nbytes`` is the larger of operand and result."""
    part = nbytes // DEVICES
    sent = part if op == "all-gather" else nbytes
    got = part if op == "reduce-scatter" else nbytes
    start = PAGE + -(-sent // PAGE) * PAGE
    operand = CollectiveOperand(
        BufferRef("arena", 0, PAGE, sent), BufferRef("arena", 0, start, got), DTYPES["f32"], sent // 4
    )
    reduction = "add" if "reduce" in op else ""
    groups = RING if op == "collective-permute" else GROUPS
    return CollectiveCall(0, op, reduction, groups, (operand,), op), start + -(-got // PAGE) * PAGE


def _made(transport: Transport, config: Config, op: str, nbytes: int, *, shared: bool) -> Callable[[], object]:
    call, arena_bytes = _call(op, nbytes)
    result = call.operands[0].result
    sections = (SharedSection(result.offset, arena_bytes - result.offset, GROUPS),) if shared else ()
    devices = transport.ownership(DEVICES).devices(transport.process_index)
    arenas = [transport.empty(arena_bytes) for _ in devices]
    tables = (ctypes.c_void_p * 1)()
    table = ctypes.addressof(tables)
    for arena in arenas:
        arena[:] = 0
    rows = (Row * len(devices))(
        *(Row(a.ctypes.data, table, table, 0, d, 0) for a, d in zip(arenas, devices, strict=True))
    )
    pool = step_pool(host_target(), config)
    pool.configure(threads_per_process(config) - 1)
    executor = transport.connect((call,), transport.ownership(DEVICES), rows, pool, sections=sections)
    perform = PERFORM_TYPE(executor.function)

    def run(keep: object = (arenas, tables, rows, executor)) -> None:
        while (state := perform(executor.state, 0, WHOLE, 50_000_000)) == 1:
            executor.tick()
        assert state == 0, executor.failure(state, 0)

    for d, arena in zip(devices, arenas, strict=True):
        arena[PAGE:][: call.operands[0].operand.nbytes].view(np.float32)[:] = d + 1
    run()
    if op == "all-reduce":
        for arena in arenas:
            np.testing.assert_array_equal(arena[result.offset :][: result.nbytes].view(np.float32), 10.0)
    return run


def main() -> None:
    config = Config.from_environment()
    transport = job_transport(config)
    budget, *words = sys.argv[1:]
    shared = words[0] == "shared"
    found = {}
    for word in words[shared:]:
        op, nbytes = word.split(":")
        call = _made(transport, config, op, int(nbytes), shared=shared)
        found[word] = seconds_per_call(
            call, lambda: transport.exchange_objects(0), lambda x: max(transport.exchange_objects(x)), float(budget)
        )
    if transport.process_index == 0:
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
