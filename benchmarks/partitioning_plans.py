"""Plans within a budget beside propagated layouts, on the programs of ``partitioning.py``: bytes, memory, seconds.

python benchmarks/partitioning_plans.py [NAME ...]
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from partitioning import global_module
from partitioning_programs import Program
from partitioning_set import ALL, programs_named

from shardc.compiler.emit.cpu_executable import build_executable
from shardc.compiler.lower.judge_by_lowering import judge_by_lowering
from shardc.hlo.config import Config
from shardc.native.llvm.target import host_target
from shardc.partitioner.options import PartitionOptions
from shardc.partitioner.partition import partition
from shardc.partitioner.plan.judge import Judgement

HEAD = ("program", "wire bytes", "collectives", "peak bytes")


@dataclass(frozen=True)
class PlanRow:
    """One program as propagated and as planned: what is sent and held, processor seconds of partitioning both ways, and
    of compiling what was propagated."""

    name: str
    before: Judgement
    after: Judgement
    seconds: tuple[float, float]
    compiling: float

    @property
    def longer(self) -> float:
        """How many times as long it takes to partition and compile."""
        return (self.seconds[1] + self.compiling) / (self.seconds[0] + self.compiling)

    def cells(self) -> tuple[str, ...]:
        pairs = (*zip(self.before.cost, self.after.cost, strict=True), (self.before.peak, self.after.peak))
        return (self.name, *(f"{a:,.0f} to {b:,.0f} = {b / a:.2f}" for a, b in pairs))


def measure(program: Program) -> PlanRow:
    """Both ways of a program."""
    module, judge = global_module(program), judge_by_lowering(Config())
    start = time.process_time()
    before = partition(module)
    between = time.process_time()
    after = partition(module, options=PartitionOptions(plan="auto"), judge=judge)
    end = time.process_time()
    build_executable(before, Config(), host_target())
    compiling = time.process_time() - end
    return PlanRow(program.name, judge(before), judge(after), (between - start, end - between), compiling)


def table(rows: Sequence[PlanRow]) -> str:
    """Those that are better as Markdown, behind what holds of all."""
    better = [r for r in rows if r.after.cost < r.before.cost]
    worse = [r.name for r in rows if r.after.cost > r.before.cost or r.after.peak > r.before.peak]
    ratios = [b.after.cost[0] / b.before.cost[0] for b in rows if b.before.cost[0] and b.after.cost[0]]
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    slower = statistics.median(r.seconds[1] / r.seconds[0] for r in rows)
    whole = sum(r.seconds[1] for r in rows) / sum(r.seconds[0] for r in rows)
    longer = sorted(rows, key=lambda r: r.longer)
    median, often = statistics.median(r.longer for r in rows), sum(r.longer > 2 for r in rows)
    slowest = ", ".join(f"{r.longer:.1f} times ({r.name})" for r in longer[:-4:-1])
    lines = [
        f'{len(rows)} programs, as propagated and with `plan="auto"`: {len(better)} send less, '
        + (f"worse in bytes or memory: {', '.join(worse)}" if worse else "none sends or holds more")
        + f". Bytes in geometric mean {mean:.3f}. Partitioning takes {slower:.1f} times as long in the median, "
        f"{whole:.1f} times in all; with compiling {median:.2f} times in the median, more than twice for {often}, "
        f"at most {slowest}.",
        "",
        "| " + " | ".join(HEAD) + " |",
        "|" + " --- |" * len(HEAD),
    ]
    better.sort(key=lambda r: r.after.cost[0] / r.before.cost[0])
    return "\n".join([*lines, *("| " + " | ".join(r.cells()) + " |" for r in better)]) + "\n"


def section() -> str:
    """All programs."""
    return table([measure(p) for p in ALL])


def main() -> None:
    print(table([measure(p) for p in programs_named(sys.argv[1:])]))


if __name__ == "__main__":
    main()
