"""Seconds by loop: programs compiled with a clock around every kernel, run on one or several devices at once."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from shardc.analysis.calibrate.programs import MeasuredLoop, arguments_of, module_text
from shardc.compiler.compile import compile_module
from shardc.compiler.executable import Executable
from shardc.compiler.profile import ProfileRecord, ProfileStep
from shardc.hlo.config import Config
from shardc.hlo.text.reader import read_hlo
from shardc.launcher.driver.compiled import Compiled

__all__ = ["Timing", "compile_loops", "per_trip", "run_loops", "spread_of"]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds per execution; ``spread`` is the middle half's width over the median of what was measured."""

    seconds: float
    spread: float


def spread_of(values: Sequence[float]) -> float:
    """The middle half's width over the median."""
    if len(values) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / middle if middle else 0.0


def compile_loops(loops: Sequence[MeasuredLoop], config: Config, *, profile: bool = True) -> Executable:
    """The native program of ``loops``, by default with a clock around every kernel."""
    module = read_hlo(module_text(loops))
    return compile_module(module, config, profile=profile)


def run_loops(
    executable: Executable, loops: Sequence[MeasuredLoop], config: Config, *, devices: int, threads: int, runs: int
) -> dict[str, Timing]:
    """Seconds of one execution of what each loop does, while ``devices`` run the program at the same time, each in a
    thread of this process with ``threads`` threads for its kernels; the slowest device's, the median of the runs."""
    programs = [Compiled(executable, config=replace(config, num_threads=threads)) for _ in range(devices)]
    values = [[p.driver.put(n, a) for n, a in enumerate(arguments_of(loops))] for p in programs]
    samples: dict[str, list[float]] = {}
    for n in range(runs + 1):
        found = _together(programs, values, loops)
        for name in found[0]:
            if n:
                samples.setdefault(name, []).append(max(f[name] for f in found))
    return {name: Timing(statistics.median(s), spread_of(s)) for name, s in samples.items()}


def _together(
    programs: Sequence[Compiled], values: Sequence[Sequence[object]], loops: Sequence[MeasuredLoop]
) -> list[dict[str, float]]:
    """One run on every device, begun together."""
    gate = threading.Barrier(len(programs))
    found: list[dict[str, float]] = [{} for _ in programs]
    failures: list[BaseException] = []

    def work(n: int) -> None:
        try:
            gate.wait()
            found[n] = _one(programs[n], values[n], loops)
        except BaseException as error:  # handed to the thread that waits
            failures.append(error)
            gate.abort()

    others = [threading.Thread(target=work, args=(n,)) for n in range(1, len(programs))]
    for thread in others:
        thread.start()
    work(0)
    for thread in others:
        thread.join()
    if failures:
        raise failures[0]
    return found


def _one(program: Compiled, values: Sequence[object], loops: Sequence[MeasuredLoop]) -> dict[str, float]:
    driver, plan = program.driver, program.executable.profile
    assert plan is not None
    (arena,) = driver.arenas.values()
    plan.record_integers(arena)[:] = 0
    driver(values)
    return per_trip(plan.sites, plan.read(arena), loops)


def per_trip(sites: Sequence[ProfileStep], record: ProfileRecord, loops: Sequence[MeasuredLoop]) -> dict[str, float]:
    """Seconds of one execution of what each loop does, by its name."""
    spent: dict[str, float] = {}
    for site, nanoseconds in zip(sites, record.nanoseconds, strict=True):
        if site.op_name:
            spent[site.op_name] = spent.get(site.op_name, 0.0) + float(nanoseconds) * 1e-9
    return {loop.name: spent[loop.name] / (loop.trips * loop.times) for loop in loops if loop.name in spent}
