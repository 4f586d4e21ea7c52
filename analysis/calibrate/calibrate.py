"""`shardc calibrate`: measures this computer with compiled programs and says what it found as a machine description.

Kernels are measured with one device on all cores, and with as many devices as cores on one thread each; collectives
and the cost of a step among virtual devices of this process and among MPI ranks. Rounds over all of it follow one
another, so that a disturbance does not meet one number alone; medians count.
"""

from __future__ import annotations

import json
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shardc.analysis.calibrate.clock import Timing, run_loops, spread_of
from shardc.analysis.calibrate.clock import compile_loops as compiled_loops
from shardc.analysis.calibrate.exchanges import measure_exchanges, measure_steps
from shardc.analysis.calibrate.memory import memory_fit, memory_loops
from shardc.analysis.calibrate.operations import empty_loop, operation_loops, operations_fit, parallel_fit
from shardc.analysis.calibrate.products import convolution_loops, convolutions_fit, product_loops, products_fit
from shardc.analysis.calibrate.programs import MeasuredLoop
from shardc.costs.machines.measured import (
    RANKS,
    VIRTUAL,
    CollectiveCurve,
    Measured,
    Rates,
    StepCost,
    cpu_name,
)
from shardc.hlo.config import Config
from shardc.hlo.errors import EnvironmentProblem, InputError, RunError, ShardcError
from shardc.hlo.units import count_text
from shardc.launcher.jobs.mpi_environment import detect_launcher
from shardc.native.threads.cores import usable_cores

__all__ = ["CalibrationClock", "Effort", "calibrate"]

log = logging.getLogger("shardc")

#: Numbers of devices among which collectives are measured, besides as many as there are cores.
_MEMBERS = (2, 4)


@dataclass(frozen=True, slots=True)
class Effort:
    """``rounds`` over all programs, each run ``runs`` times; ``small``: fewer sizes."""

    rounds: int = 3
    runs: int = 3
    small: bool = False


QUICK = Effort(1, 1, small=True)


class CalibrationClock:
    """What measures. Tests put a synthetic one in its place."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._compiled: dict[int, object] = {}

    def kernels(self, loops: Sequence[MeasuredLoop], devices: int, threads: int, runs: int) -> Mapping[str, Timing]:
        """Seconds by loop."""
        from shardc.compiler.executable import Executable

        made = self._compiled.get(id(loops))
        if not isinstance(made, Executable):
            made = self._compiled[id(loops)] = compiled_loops(loops, self._config)
        return run_loops(made, loops, self._config, devices=devices, threads=threads, runs=runs)

    def virtual(self, devices: int, runs: int) -> tuple[Mapping[str, Timing], Sequence[float]]:
        """Seconds by collective and of a step, among virtual devices."""
        timings = measure_exchanges(devices, self._config, runs) if devices > 1 else {}
        return timings, measure_steps(devices, self._config, runs)

    def ranks(self, devices: int, runs: int) -> tuple[Mapping[str, Timing], Sequence[float]]:
        """The same among the ranks of a job of their own. Raises `EnvironmentProblem` without MPI."""
        from shardc.launcher.jobs.mpiexec import python_command, start_job

        with tempfile.TemporaryDirectory() as folder:
            answer = Path(folder, "answer.json")
            words = [sys.executable, "-m", "shardc.analysis.calibrate.exchange_main", str(answer), str(runs)]
            code = start_job(devices, python_command(words))
            if code or not answer.is_file():
                raise RunError(
                    f"the job of {count_text(devices, 'rank')} that measures collectives ended with exit code {code}"
                )
            data = json.loads(answer.read_text())
        return {name: Timing(**t) for name, t in data["collectives"].items()}, data["steps"]


Progress = Callable[[str, int, int], None]


def calibrate(effort: Effort, clock: CalibrationClock, progress: Progress = lambda what, done, of: None) -> Measured:
    """Measure this computer; ``progress`` hears what comes next. Raises `InputError` inside of a job.

    Without MPI the ranks' numbers are those of virtual devices, and a warning says so.
    """
    launcher = detect_launcher()
    if launcher is not None and launcher.size > 1:
        raise InputError(
            f"calibrate was started in a job of {count_text(launcher.size, 'rank')}, "
            f"which would disturb each other's measurements",
            fix="start it without mpirun: it starts its ranks itself",
        )
    cores = usable_cores()
    start = _Progress(progress, effort, cores)
    rates = _all_rates(effort, clock, cores, start)
    _warn_of_disturbance(rates[0])
    curves, steps = _exchanges(effort, clock, cores, start)
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return Measured(cpu_name(), cores, created, rates, curves, steps)


#: An element of the narrowest type takes at least so much of the time of a multiply-add in the fastest product.
_LEAST_SHARE = 1 / 16


def _warn_of_disturbance(rates: Rates) -> None:
    """Warn of times that are too short for any processor: differences of measurements that other work disturbed."""
    multiply_add = min(s / (m * n * k) for points in rates.products.values() for m, n, k, s in points)
    wrong = sorted(name for name, s in rates.operations.items() if s < _LEAST_SHARE * multiply_add)
    if wrong:
        log.warning(
            "other work disturbed the measurement: the times of %s are too short. Run shardc calibrate again "
            "while nothing else runs",
            ", ".join(wrong),
        )


class _Progress:
    """Counts what was done."""

    def __init__(self, progress: Progress, effort: Effort, cores: int) -> None:
        self._progress, self._done = progress, 0
        self._of = effort.rounds * (6 if cores > 1 else 3) + 2 * (1 + len(_counts(cores, effort)))

    def __call__(self, what: str) -> None:
        self._progress(what, self._done, self._of)
        self._done += 1


def _shares(cores: int) -> tuple[tuple[int, int], ...]:
    """(devices, threads of each) that kernels are measured with; the last one has a thread per core and device."""
    return ((1, cores), (1, 1), (cores, 1)) if cores > 1 else ((1, 1),)


def _counts(cores: int, effort: Effort) -> tuple[int, ...]:
    """Numbers of devices that exchange."""
    return tuple(sorted({*_MEMBERS, *([cores] if 2 <= cores <= 64 and not effort.small else [])}))


# -- kernels -------------------------------------------------------------------------------------------------------


def _all_rates(effort: Effort, clock: CalibrationClock, cores: int, progress: _Progress) -> tuple[Rates, ...]:
    memory = memory_loops(small=effort.small, devices=cores)
    arithmetic = [empty_loop(), *operation_loops(small=effort.small)]
    products = [*product_loops(small=effort.small), *convolution_loops()]
    shares = _shares(cores)
    busy = shares[-1]
    # One thread's arithmetic and products are measured while all cores are at work; what several threads make of it
    # follows from how kernels are cut, so that of them only the cost of coming together is wanted.
    groups = {share: [memory, *([arithmetic] if share[1] > 1 else [])] for share in shares}
    groups[busy] = [memory, arithmetic, products]
    samples: dict[tuple[int, int], dict[str, list[Timing]]] = {share: {} for share in shares}
    for _ in range(effort.rounds):
        for (devices, threads), found in samples.items():
            for loops in groups[devices, threads]:
                progress(f"{devices} x {count_text(threads, 'thread')}")
                for name, timing in clock.kernels(loops, devices, threads, effort.runs).items():
                    found.setdefault(name, []).append(timing)
    medians = {share: _medians(found) for share, found in samples.items()}
    base = _rates(*busy, medians[busy])
    return tuple(base if share == busy else _beside(base, share, medians[busy], medians[share]) for share in shares)


def _beside(base: Rates, share: tuple[int, int], busy: Mapping[str, Timing], found: Mapping[str, Timing]) -> Rates:
    """The rates of another share: with memory and the cost of several threads of its own, and the arithmetic of one
    thread."""
    call = busy[empty_loop().name].seconds
    curves = memory_fit({name: t.seconds for name, t in found.items()}, call)
    together, each = ({name: t.seconds for name, t in timings.items()} for timings in (found, busy))
    return replace(
        base,
        devices=share[0],
        threads=share[1],
        read=curves["read"],
        write=curves["write"],
        update=curves["update"],
        parallel_seconds=parallel_fit(together, each, share[1], call) if share[1] > 1 else 0.0,
        spread=statistics.median(t.spread for t in found.values()),
    )


def _medians(found: Mapping[str, Sequence[Timing]]) -> dict[str, Timing]:
    """Over rounds."""
    out = {}
    for name, timings in found.items():
        seconds = [t.seconds for t in timings]
        spread = spread_of(seconds) if len(seconds) > 1 else timings[0].spread
        out[name] = Timing(statistics.median(seconds), spread)
    return out


def _rates(devices: int, threads: int, found: Mapping[str, Timing]) -> Rates:
    seconds = {name: t.seconds for name, t in found.items()}
    # Each time has a clock's call in it, and next to nothing else where a kernel does nothing.
    call = seconds[empty_loop().name]
    curves = memory_fit(seconds, call)
    return Rates(
        devices=devices,
        threads=threads,
        call_seconds=_CALL * call,
        operations=operations_fit(seconds, call),
        read=curves["read"],
        write=curves["write"],
        update=curves["update"],
        products=products_fit(seconds, call),
        convolutions=convolutions_fit(seconds, call),
        spread=statistics.median(t.spread for t in found.values()),
    )


#: Of the time of an empty kernel what is not the clock's.
_CALL = 0.3


# -- collectives ---------------------------------------------------------------------------------------------------


def _exchanges(
    effort: Effort, clock: CalibrationClock, cores: int, progress: _Progress
) -> tuple[tuple[CollectiveCurve, ...], tuple[StepCost, ...]]:
    curves: list[CollectiveCurve] = []
    steps: list[StepCost] = []
    runs = 2 * effort.rounds
    for where, measure in ((VIRTUAL, clock.virtual), (RANKS, clock.ranks)):
        for devices in (1, *_counts(cores, effort)):
            progress(f"collectives of {devices} {'virtual devices' if where == VIRTUAL else 'ranks'}")
            if devices == 1 and where == RANKS:
                continue  # the same as one virtual device
            try:
                timings, step = measure(devices, runs)
            except EnvironmentProblem as problem:
                log.warning("ranks are not measured, virtual devices stand for them: %s", _first_line(problem))
                curves += [replace(c, where=RANKS) for c in curves if c.where == VIRTUAL]
                steps += [replace(s, where=RANKS) for s in steps if s.where == VIRTUAL]
                break
            curves += _curves(where, devices, timings)
            steps.append(StepCost(where, devices, max(1e-7, step[0]), max(0.0, step[1])))
    return tuple(curves), tuple(steps)


def _first_line(problem: ShardcError) -> str:
    return str(problem).partition("\n")[0]


def _curves(where: str, devices: int, timings: Mapping[str, Timing]) -> Iterable[CollectiveCurve]:
    """One per opcode: seconds by bytes, which never fall as bytes grow."""
    by_opcode: dict[str, list[tuple[float, float]]] = {}
    spreads: dict[str, list[float]] = {}
    for name, timing in timings.items():
        opcode, _, size = name.partition(" ")
        by_opcode.setdefault(opcode, []).append((float(size), timing.seconds))
        spreads.setdefault(opcode, []).append(timing.spread)
    for opcode, points in by_opcode.items():
        rising: list[tuple[float, float]] = []
        for nbytes, seconds in sorted(points, reverse=True):
            rising.insert(0, (nbytes, min(seconds, rising[0][1]) if rising else seconds))
        yield CollectiveCurve(where, opcode, devices, tuple(rising), statistics.median(spreads[opcode]))
