"""How well the cost by which plans are chosen ranks plans: against bytes sent, simulated and measured steps.

python benchmarks/plan_order.py [--plans N] [--rounds N] [--keep] [PROGRAM ...]

Plans are random (`random_plans`). Bytes and simulated steps say what becomes of a plan on a described machine; measured
steps are those of this computer, after `shardc calibrate`: leave it alone meanwhile. Each figure is Spearman's
correlation of ranks over the plans of one program: 1 is the same order.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from random_plans import random_plans, rank_correlation
from tables import table
from validity_programs import VALIDITY

import shardc
from shardc.analysis.simulate.judge_by_simulation import judge_by_simulation
from shardc.hlo.config import Config
from shardc.partitioner.plan.judge import judge_by_bytes

HERE = Path(__file__).parent
PROGRAMS = ("attention", "fsdp-scan", "statistics", "embedding", "mlp-mixed")
MODELLED = ("program", "plans", "bytes", "simulated step", "chosen / best, bytes", "chosen / best, simulated")
MEASURED = ("program", "devices", "plans", "cost", "simulated", "measured again", "slowest / fastest", "chosen / best")
#: The machine that steps are simulated on.
MACHINE = "h100-dgx"
#: Seconds that one job may take.
_LIMIT = 550


def section(plans: int = 12, rounds: int = 8) -> str:
    """The tables for docs/benchmarks.md."""
    return (
        table(MODELLED, modelled_rows(PROGRAMS, plans)) + "\n" + table(MEASURED, measured_rows(PROGRAMS, plans, rounds))
    )


# -- modelled ----------------------------------------------------------------------------------------------------


def modelled_rows(names: Sequence[str], count: int) -> list[tuple[str, ...]]:
    """The posed cost against what becomes of the plan: without a machine, and on one."""
    out = []
    for name in names:
        case = VALIDITY[name](4)
        jitted = shardc.jit(case.function, mesh=case.mesh, in_shardings=case.in_specs, out_shardings=case.out_specs)
        program, found = jitted.program(*case.arguments), []
        for machine, judge in ((None, judge_by_bytes()), (MACHINE, judge_by_simulation(MACHINE, Config()))):
            plans = list(random_plans(program, machine, count))
            results = [judge(p.chosen.module).cost[0] for p in plans]
            found.append((len(plans), rank_correlation([p.cost for p in plans], results), results[0] / min(results)))
        (n, by_bytes, first), (_, simulated, second) = found
        out.append((case.name, str(n), f"{by_bytes:.2f}", f"{simulated:.2f}", f"{first:.2f}", f"{second:.2f}"))
    return out


# -- measured ----------------------------------------------------------------------------------------------------


def measured_rows(names: Sequence[str], count: int, rounds: int, *, calibrate: bool = True) -> list[tuple[str, ...]]:
    """Costs on this computer as calibrated, simulated steps and a second measurement against measured steps."""
    out = []
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ}
        if calibrate:
            environment["XDG_DATA_HOME"] = folder
            _run([sys.executable, "-m", "shardc", "calibrate", "--quiet"], environment)
        worker = [sys.executable, str(HERE / "plan_order_worker.py")]
        ranks = [sys.executable, "-m", "shardc", "mpiexec", "-n", "4", *worker]
        for name in names:
            for kind, command, machine in (("virtual", worker, "this-virtual"), ("ranks", ranks, "this")):
                file = Path(folder, f"{name}-{kind}.json")
                _run([*command, str(file), name, str(count), str(rounds), machine], environment)
                out.append(_measured_row(kind, json.loads(file.read_text())))
    return out


def _measured_row(kind: str, found: Mapping[str, Any]) -> tuple[str, ...]:
    steps = found["measured"]
    figures = [rank_correlation(found[key], steps) for key in ("cost", "simulated")]
    figures.append(rank_correlation(*found["halves"]))
    spread, first = max(steps) / min(steps), steps[0] / min(steps)
    return found["title"], kind, str(len(steps)), *(f"{x:.2f}" for x in (*figures, spread, first))


def _run(command: Sequence[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_LIMIT, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed ({done.returncode})\n{done.stderr[-2000:]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", default=PROGRAMS)
    parser.add_argument("--plans", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--keep", action="store_true", help="use the calibration that is there")
    options = parser.parse_args()
    print(table(MODELLED, modelled_rows(options.programs, options.plans)), flush=True)
    rows = measured_rows(options.programs, options.plans, options.rounds, calibrate=not options.keep)
    print(table(MEASURED, rows))
    column = [float(row[3]) for row in rows]
    print(f"median of cost against measured: {statistics.median(column):.2f}")


if __name__ == "__main__":
    main()
