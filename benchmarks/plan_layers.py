"""Plans for 100 layers, under a scan and unrolled: what posing, solving and all of partitioning take.

    python benchmarks/plan_layers.py

Each row is a process of its own. Seconds are the processor's; the solver's are those without a limit of memory.
"""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
import time
from itertools import pairwise

from plan_scan import scan_of_layers
from programs import transformer
from tables import table

import shardc
from shardc import Mesh
from shardc.costs.machines.machine import load_machine
from shardc.hlo.config import Config
from shardc.hlo.passes import run_pipeline
from shardc.partitioner.partition import OPENING
from shardc.partitioner.plan.plan_layouts import pose_question

__all__ = ["section"]

HEAD = ("100 layers", "instructions", "devices", "posed", "solved", "gap", "partitioned", "process's peak memory")
MACHINE = "h100-dgx"
MESHES = {4: {"data": 2, "model": 2}, 16384: {"data": 128, "model": 128}}
#: A row takes no longer, in seconds.
_LIMIT = 900.0


def section() -> str:
    rows: list[list[str]] = []
    for name in ("scan", "unrolled"):
        for devices in MESHES:
            command = [sys.executable, __file__, name, str(devices)]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT, check=True)
                rows.append(json.loads(done.stdout.splitlines()[-1]))
            except subprocess.TimeoutExpired:
                rows.append([name, "", f"{devices:,}", "not in time", "", "", "", ""])
    return table(HEAD, rows)


def _annotated(name: str, mesh: Mesh) -> shardc.Program:
    if name == "scan":
        return scan_of_layers(mesh)
    case = transformer(layers=100, batch=4096 * 4)
    step = shardc.jit(case.function, mesh=case.mesh, in_shardings=case.in_specs, out_shardings=case.out_specs)
    return step.program(*case.arguments).annotate({}, mesh=mesh)


def _row(name: str, devices: int) -> list[str]:
    propagated = _annotated(name, Mesh(MESHES[devices])).propagate()
    count = sum(1 for _ in propagated.module.instructions())
    times = [time.process_time()]
    question = pose_question(run_pipeline(propagated.module, OPENING, Config()), load_machine(MACHINE))
    times.append(time.process_time())
    gap = question.solve(math.inf).gap
    times.append(time.process_time())
    propagated.partition(machine=MACHINE, plan="global")
    times.append(time.process_time())
    posed, solved, partitioned = (f"{b - a:.1f} s" for a, b in pairwise(times))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return [name, f"{count:,}", f"{devices:,}", posed, solved, f"{gap:.2%}", partitioned, f"{peak:.1f} GiB"]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(_row(sys.argv[1], int(sys.argv[2]))))
    else:
        print(section())
