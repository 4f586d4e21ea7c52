"""All benchmarks with one command (``make bench``): prints the tables and writes them into docs/benchmarks.md.

python benchmarks/run.py [SECTION ...] [--dry]
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Callable, Mapping
from pathlib import Path

import collective_steps
import compiler_speed
import cpu_steps
import device_steps
import dispatch
import functional_scale
import mpi_examples
import mpi_stencils
import numpy_chains
import numpy_exchanges
import numpy_loops
import numpy_scans
import overlap
import partitioning
import partitioning_plans
import phases
import plan_layers
import plan_order
import plan_rivals
import plan_scan
import plan_solving
import propagation
import published
import simulate_scale
import small_programs
import sorting
import training_steps
import validity
from tables import insert, table

ROOT = Path(__file__).resolve().parent.parent


def _steps() -> str:
    head = ("one device", "shardc", "XLA", "ratio", "middle half", "on one core", "goal", "peak memory, shardc / XLA")
    return _machine() + table(head, cpu_steps.rows())


def _kernels() -> str:
    head = ("kernel", "shardc", "XLA", "ratio", "GB/s", "memory then", "share", "XLA's share")
    return _machine() + table(head, cpu_steps.kernel_rows())


def _chains() -> str:
    return _machine() + table(("chain, 4 Mi elements", "shardc", "NumPy", "ratio"), numpy_chains.rows())


def _scans() -> str:
    head = ("4 Mi float64", "shardc", "NumPy", "ratio", "sent by each of 2 devices, bytes", "planned peak of each")
    return _machine() + table(head, numpy_scans.rows())


def _sorts() -> str:
    return _machine() + table(sorting.HEAD, list(sorting.rows()))


def _exchanges() -> str:
    sent = table(numpy_exchanges.HEAD, numpy_exchanges.rows())
    return _machine() + sent + "\n" + table(numpy_exchanges.TIMES_HEAD, numpy_exchanges.times())


def _loops() -> str:
    tables = (
        table(numpy_loops.HEAD, numpy_loops.rows()),
        table(numpy_loops.ITERATIONS_HEAD, numpy_loops.iterations()),
        table(numpy_loops.BYTES_HEAD, numpy_loops.bytes_sent()),
    )
    return _machine() + "\n".join(tables)


def _mpi_examples() -> str:
    return _machine() + table(mpi_examples.HEAD, mpi_examples.rows())


def _mpi_stencils() -> str:
    return _machine() + table(mpi_stencils.HEAD, list(mpi_stencils.rows()))


def _compile() -> str:
    head = ("program", "cold", "from the cache", "XLA", "XLA / cold", "cold / cached")
    return _machine() + table(head, cpu_steps.compile_rows())


def _small_programs() -> str:
    return _machine() + small_programs.section()


def _virtual() -> str:
    return _machine() + table(("compile for 4 devices", "cache", "shardc", "XLA", "ratio"), training_steps.rows())


def _devices() -> str:
    head = ("step on several devices", "devices", "shardc", "XLA", "ratio", "middle half", "goal", "shardc, 4 ranks")
    return _machine() + table(head, device_steps.rows())


def _dispatch() -> str:
    return _machine() + table(dispatch.HEAD, dispatch.rows())


def _collectives() -> str:
    found = collective_steps.measure(mpi=os.environ.get("SHARDC_BENCH_MPI", ""))
    return (
        _machine()
        + table(*collective_steps.rows(found))
        + "\n"
        + table(collective_steps.RATIOS, collective_steps.ratios(found))
    )


def _phases() -> str:
    return _machine() + table(phases.HEAD, phases.rows())


def _functional() -> str:
    return _machine() + table(functional_scale.HEAD, functional_scale.rows())


def _simulate() -> str:
    return _machine() + simulate_scale.section()


def _overlap() -> str:
    return _machine() + table(overlap.HEAD, overlap.rows())


def _own_speed() -> str:
    head = ("layers", "instructions", "devices", "read HLO text", "propagate", "partition", "XLA, all of it")
    text = table(("instructions", "read HLO text", "print"), compiler_speed.text_rows())
    return _machine() + table(head, compiler_speed.rows()) + "\n" + text


def _propagation() -> str:
    head = ("layers", "instructions", "devices", "shardc", "Shardy", "shardc / Shardy")
    return _machine() + table(head, propagation.rows())


def _plans() -> str:
    return _machine() + plan_rivals.section()


def _validity() -> str:
    found = validity.measure()
    return _machine() + validity.summary(found) + "\n" + table(validity.HEAD, validity.rows(found))


def _solving() -> str:
    return f"{_machine()}{plan_solving.section()}\n\n{plan_layers.section()}"


def _machine() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} cores, {platform.machine()}, Python {platform.python_version()}.\n\n"


#: By the name of the marker in docs/benchmarks.md.
SECTIONS: Mapping[str, Callable[[], str]] = {
    "steps": _steps,
    "kernels": _kernels,
    "chains": _chains,
    "scans": _scans,
    "sorts": _sorts,
    "exchanges": _exchanges,
    "loops": _loops,
    "mpi-examples": _mpi_examples,
    "mpi-stencils": _mpi_stencils,
    "compile": _compile,
    "small-programs": _small_programs,
    "virtual-devices": _virtual,
    "devices": _devices,
    "dispatch": _dispatch,
    "collectives": _collectives,
    "phases": _phases,
    "overlap": _overlap,
    "functional": _functional,
    "own-speed": _own_speed,
    "propagation": _propagation,
    "partitioning": partitioning.section,
    "plan-order": plan_order.section,
    "partitioning-plans": partitioning_plans.section,
    "solving": _solving,
    "plan-scan": lambda: table(plan_scan.HEAD, list(plan_scan.rows())),
    "plans": _plans,
    "published": published.section,
    "validity": _validity,
    "simulate": _simulate,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], help="default: all of them")
    parser.add_argument("--dry", action="store_true", help="print only")
    options = parser.parse_args()
    for name in options.sections or SECTIONS:
        text = SECTIONS[name]()
        print(f"{name}\n\n{text}", flush=True)
        if not options.dry:
            insert(ROOT / "docs" / "benchmarks.md", {name: text})


if __name__ == "__main__":
    main()
