"""Our partitioner beside XLA's, program by program: what each device sends, holds and computes.

python benchmarks/partitioning.py [NAME ...]

XLA's side is its compiled text, read by our reader and counted by our counter, loops included; its memory is its
own buffer assignment's figure, ours our compiler's. Ratios are ours over XLA's: below 1, we need less. With names
(parts of them) only those programs, with their collectives side by side.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jax.sharding import AbstractMesh, AxisType
from partitioning_causes import CAUSES
from partitioning_programs import Places, Program
from partitioning_set import ALL, programs_named

from shardc.compiler.lower.lowered import memory_analysis
from shardc.compiler.lower.pipeline import lower
from shardc.frontends.jax.frontend import module_from_jax
from shardc.hlo.config import Config
from shardc.hlo.ir.ir import Module
from shardc.hlo.text.reader import read_hlo
from shardc.partitioner.partition import partition
from shardc.partitioner.report import build_report
from shardc.sharding.propagate import propagate

WHAT = ("wire_bytes", "collectives", "peak_bytes", "flops")


@dataclass(frozen=True)
class Row:
    """One program: (ours, XLA's) per figure, or why there is none, and both reports."""

    program: Program
    figures: dict[str, tuple[float, float]]
    ours: dict[str, Any]
    theirs: dict[str, Any]
    problem: str = ""

    def ratio(self, what: str) -> float:
        mine, other = self.figures[what]
        return mine / other if other else (math.inf if mine else 1.0)


def global_module(program: Program) -> Module:
    """The propagated program over the whole arrays."""
    mesh = AbstractMesh(
        tuple(program.mesh.values()), tuple(program.mesh), axis_types=(AxisType.Auto,) * len(program.mesh)
    )
    function, arguments = program.make(Places(mesh))
    return propagate(module_from_jax(function, *arguments).module).module


def xla_reports(programs: Sequence[Program]) -> dict[str, dict[str, Any]]:
    """What XLA makes of the programs, by name, from one child process."""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    worker = Path(__file__).with_name("partitioning_worker.py")
    out = {}
    with tempfile.TemporaryDirectory() as folder:
        names = [str(ALL.index(p)) for p in programs]
        subprocess.run([sys.executable, str(worker), folder, *names], env={**os.environ, **flags}, check=True)
        for name, program in zip(names, programs, strict=True):
            module = read_hlo(Path(folder, f"{name}.hlo").read_text(encoding="utf-8"))
            peak = json.loads(Path(folder, f"{name}.json").read_text(encoding="utf-8"))["peak_bytes"]
            out[program.name] = build_report(module, peak_bytes=peak)
    return out


def our_report(program: Program) -> dict[str, Any]:
    """What we make of a program."""
    local = partition(global_module(program))
    return build_report(local, peak_bytes=memory_analysis(lower(local, Config()))["peak_bytes"])


def measure(programs: Sequence[Program]) -> list[Row]:
    """Both sides of every program."""
    theirs = xla_reports(programs)
    out = []
    for program in programs:
        other = theirs[program.name]
        try:
            mine = our_report(program)
        except Exception as error:
            out.append(Row(program, {}, {}, other, f"{type(error).__name__}: {error}".splitlines()[0]))
            continue
        figures = {w: (_figure(mine, w), _figure(other, w)) for w in WHAT}
        out.append(Row(program, figures, mine, other))
    return out


def _figure(report: dict[str, Any], what: str) -> float:
    if what == "collectives":
        return float(sum(c["count"] for c in report["collectives"]))
    return float(report[what])


def geometric_mean(found: Sequence[Row], what: str) -> float:
    """Over programs in which both sides need some."""
    ratios = [r.ratio(what) for r in found if r.figures and all(r.figures[what])]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else 1.0


def rows(found: Sequence[Row]) -> list[tuple[str, ...]]:
    """The table: (program, mesh, then per figure ours / XLA's and the ratio) as text, geometric means at the end."""
    out = [(r.program.name, _mesh(r.program), *_cells(r)) for r in found]
    out.append(("geometric mean", "", *(f"{geometric_mean(found, w):.2f}" for w in WHAT)))
    return out


#: A ratio above this counts as more.
MORE = 1.0005
HEAD = ("program", "mesh", "wire bytes", "collectives", "peak bytes", "flops")
NOTE = """Per device and step, shardc / XLA = ratio: below 1, shardc needs less. Both sides are counted by one counter,
loops multiplied in; peaks are each compiler's own figure. `python benchmarks/partitioning.py NAME` shows the
collectives.
"""


def section() -> str:
    """The table as Markdown, and which programs need more than XLA's, with the cause where it is known."""
    found = measure(ALL)
    lines = [NOTE, "| " + " | ".join(HEAD) + " |", "|" + " --- |" * len(HEAD)]
    lines += ["| " + " | ".join(r) + " |" for r in rows(found)]
    for what, title in (("wire_bytes", "sends more"), ("peak_bytes", "holds more"), ("flops", "computes more")):
        more = [r for r in found if r.figures and r.ratio(what) > MORE]
        lines += ["", f"Where shardc {title} than XLA (of {len(found)} programs):" + ("" if more else " nowhere.")]
        lines += [""] if more else []
        lines += [f"* {r.program.name}, {r.ratio(what):.3f}{_cause(r, what)}" for r in more]
    return "\n".join(lines) + "\n"


def _cause(row: Row, what: str) -> str:
    return ": " + CAUSES[what].get(row.program.name, "cause not known yet")


def _cells(row: Row) -> tuple[str, ...]:
    if row.problem:
        return (row.problem, "", "", "")
    return tuple(f"{row.figures[w][0]:,.0f} / {row.figures[w][1]:,.0f} = {row.ratio(w):.2f}" for w in WHAT)


def _mesh(program: Program) -> str:
    return "x".join(str(n) for n in program.mesh.values())


def _details(row: Row) -> list[str]:
    lines = [f"== {row.program.name} {_mesh(row.program)}: {' | '.join(_cells(row))}"]
    for side, report in (("ours", row.ours), ("XLA", row.theirs)):
        for c in sorted(report.get("collectives", ()), key=lambda c: -c["wire_bytes"]):
            why = f"{c['source']} {c['op_name'].rsplit('/', 1)[-1]} {c['reason']}"
            lines.append(f"  {side:4} {c['wire_bytes']:>10,.0f} {c['count']:>3}x {c['op']} {'+'.join(c['axes'])} {why}")
    return lines


def main() -> None:
    if wanted := sys.argv[1:]:
        for row in measure(programs_named(wanted)):
            print("\n".join(_details(row)))
        return
    print(section())


if __name__ == "__main__":
    main()
