"""Plans that are found beside plans by hand: what a simulated step takes, within the memory that the hand plan takes.

    python benchmarks/plan_rivals.py [--devices 4,64] [--programs TEXT,TEXT] [--seconds 600] [--arguments] [--log FILE]

For every program of `plan_language` and `plan_networks` and every number of devices a process of its own partitions and
simulates each hand plan, the plan found from nothing in the memory of the fastest hand plan, and with --arguments the
plan found from each hand plan's annotations of arguments alone, in that hand plan's memory. Every figure goes to the
log, a line of JSON each, as it is there: a program that takes longer than its limit keeps what it had by then.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from plan_programs import HandPlan, PlanProgram, planned, size_for
from plan_set import PLANS
from tables import table

from shardc.costs.machines.machine import load_machine
from shardc.hlo.errors import ShardcError
from shardc.partitioner.free_interface import find_free_interface

__all__ = ["Figure", "best_by_hand", "measure", "read_figures", "section"]

MACHINE = "h100-dgx"
DEVICES = (4, 64, 1024, 16384)
#: Seconds for each program at each size in the documents' table.
_LIMIT = 70.0
#: How a program came to its layouts.
BY_HAND, FROM_ARGUMENTS, FROM_NOTHING = "by hand", "from its arguments", "from nothing"


@dataclass(frozen=True)
class Figure:
    """What one way to lay out a program comes to: seconds of a simulated step, peak bytes, seconds to find it.

    ``problem`` says why there is none.
    """

    program: str
    devices: int
    plan: str
    how: str
    step: float = 0.0
    peak: float = 0.0
    took: float = 0.0
    problem: str = ""


def measure(names: Sequence[str], devices: Sequence[int], seconds: float, log: Path, *, arguments: bool) -> None:
    """All programs whose names have one of ``names`` in them, one process after another, into ``log``."""
    for count in devices:
        for program in PLANS:
            if not names or any(n in program.name for n in names):
                command = [sys.executable, __file__, "--worker", program.name, str(count), str(log)]
                command += ["--arguments"] * arguments
                begun = time.perf_counter()
                try:
                    code = subprocess.run(command, timeout=seconds, check=False).returncode
                    problem = f"the process ended with {code}" if code else ""
                except subprocess.TimeoutExpired:
                    problem = f"not done after {seconds:g} s"
                if problem:
                    _write(log, Figure(program.name, count, "", "", took=time.perf_counter() - begun, problem=problem))


def read_figures(log: Path) -> list[Figure]:
    """What a log has; of a figure that was taken again, the last."""
    lines = log.read_text(encoding="utf-8").splitlines()
    found = [Figure(**json.loads(line)) for line in lines]
    return list({(f.program, f.devices, f.plan, f.how): f for f in found}.values())


def best_by_hand(figures: list[Figure]) -> Figure:
    """The fastest hand plan that fits into a device of the machine; where none does, the fastest."""
    room = load_machine(MACHINE).device.memory_bytes
    return min(figures, key=lambda f: (f.peak > room, f.step))


def section(log: Path | None = None) -> str:
    """The table of the documents: of a ``log``, or measured now."""
    with tempfile.TemporaryDirectory() as folder:
        if log is None:
            log = Path(folder, "figures.jsonl")
            measure((), DEVICES, _LIMIT, log, arguments=False)
        figures = read_figures(log)
    rows = [[p.name, *(_cell(figures, p.name, n) for n in DEVICES)] for p in PLANS]
    return table(("program", *(f"{n:,} devices" for n in DEVICES)), rows)


def _cell(figures: list[Figure], name: str, devices: int) -> str:
    """Step and peak of the plan from nothing over those of the best hand plan, and its name."""
    mine = [f for f in figures if f.program == name and f.devices == devices]
    by_hand = [f for f in mine if f.how == BY_HAND and not f.problem]
    found = [f for f in mine if f.how == FROM_NOTHING]
    if not by_hand:
        return "not in time" if mine else "not run"
    if not found:
        return f"not in time (best by hand: {best_by_hand(by_hand).plan})"
    hand, (plan,) = best_by_hand(by_hand), found
    if plan.problem:
        return f"none within the memory of {hand.plan}"
    return f"{plan.step / hand.step:.2f}x, {plan.peak / hand.peak:.2f}x ({hand.plan})"


def _write(log: Path, figure: Figure) -> None:
    with log.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(figure)) + "\n")


def _work(name: str, devices: int, log: Path, *, arguments: bool) -> None:
    """One program at one size."""
    for figure in _figures(name, devices, arguments=arguments):
        _write(log, figure)
        print(
            f"{figure.program:28} {devices:6} {figure.plan:36} {figure.how:20} {figure.step:12.6g} s "
            f"{figure.peak / 2**30:9.3f} GiB, took {figure.took:6.1f} s {figure.problem}",
            flush=True,
        )


def _figures(name: str, devices: int, *, arguments: bool) -> Iterator[Figure]:
    program: PlanProgram = next(p for p in PLANS if p.name == name)
    size = size_for(devices)

    def figure(plan: str, annotated: HandPlan | None, how: str, memory: float | None = None) -> Figure:
        begun = time.perf_counter()
        try:
            source = planned(program, size, annotated)
            free = find_free_interface(source.module) if annotated is None else None
            kind = "propagated" if memory is None else "global"
            made = source.propagate().partition(machine=MACHINE, plan=kind, memory=memory, interface=free)
            found = made.simulate(MACHINE, ignore_memory=True)
        except ShardcError as error:
            return Figure(name, devices, plan, how, took=time.perf_counter() - begun, problem=str(error))
        return Figure(name, devices, plan, how, found.step_seconds, found.peak_bytes, time.perf_counter() - begun)

    by_hand: dict[str, Figure] = {}
    for plan in program.plans:
        by_hand[plan.name] = figure(plan.name, plan, BY_HAND)
        yield by_hand[plan.name]
    known = [h for h in by_hand.values() if not h.problem]
    if known:
        best = best_by_hand(known)
        yield figure(best.plan, None, FROM_NOTHING, best.peak)
    for plan in program.plans:
        if arguments and not by_hand[plan.name].problem:
            yield figure(plan.name, replace(plan, points={}), FROM_ARGUMENTS, by_hand[plan.name].peak)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", default=",".join(map(str, DEVICES)))
    parser.add_argument("--programs", default="")
    parser.add_argument("--seconds", type=float, default=600.0, help="limit for each program at each size")
    parser.add_argument("--arguments", action="store_true", help="plans from the hand plans' arguments, too")
    parser.add_argument("--log", type=Path, default=Path("plan_rivals.jsonl"))
    parser.add_argument("--worker", nargs=3, metavar=("PROGRAM", "DEVICES", "LOG"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        name, devices, log = options.worker
        _work(name, int(devices), Path(log), arguments=options.arguments)
        return
    names = [n for n in options.programs.split(",") if n]
    measure(
        names, [int(d) for d in options.devices.split(",")], options.seconds, options.log, arguments=options.arguments
    )


if __name__ == "__main__":
    main()
