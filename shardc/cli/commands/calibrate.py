"""``shardc calibrate``: measure this computer, for predictions with ``--machine this``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from shardc.cli.options import JsonOption, QuietOption, VerboseOption
from shardc.cli.view import View, seconds_text
from shardc.hlo.units import count_text

__all__ = ["calibrate"]


def calibrate(
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.toml",
            help="Output file (-: stdout); default: the file that --machine this reads.",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Take less time: fewer sizes, one round instead of three.")
    ] = False,
    json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Measure kernels, memory, collectives and steps of this computer, and save a machine description.

    Takes about a minute and a half if nothing else runs, as it should. Afterwards --machine this predicts MPI ranks of
    this computer, --machine this-virtual virtual devices of one process. Example: shardc calibrate
    """
    from shardc.analysis.calibrate.calibrate import QUICK, CalibrationClock, Effort
    from shardc.analysis.calibrate.calibrate import calibrate as measure
    from shardc.analysis.calibrate.describe import machine_text
    from shardc.analysis.calibrate.keep import check_place, keep
    from shardc.costs.machines.measured import Measured, this_machine_path
    from shardc.hlo.config import Config
    from shardc.launcher.run.output_files import STANDARD_OUTPUT

    view = View(json, verbose, quiet)
    path = this_machine_path() if output is None else output
    check_place(path)
    bar = _Bar(shown=sys.stderr.isatty() and not quiet)
    measured = measure(QUICK if quick else Effort(), CalibrationClock(Config.from_environment()), bar)
    bar.close()
    aside = path == STANDARD_OUTPUT
    keep(path, machine_text(measured, "this" if output is None or aside else path.stem))

    def data() -> dict[str, Any]:
        return {
            "path": str(path),
            "cpu": measured.cpu,
            "cores": measured.cores,
            "created": measured.created,
            "rates": [
                {"devices": r.devices, "threads": r.threads, "spread": r.spread, **_arithmetic(r), **_memory(r)}
                for r in measured.rates
            ],
            "collectives": [
                {"where": c.where, "opcode": c.opcode, "members": c.members, "points": c.points, "spread": c.spread}
                for c in measured.collectives
            ],
            "steps": [
                {"where": s.where, "devices": s.devices, "seconds": s.seconds, "per_array": s.per_array}
                for s in measured.steps
            ],
        }

    def show(found: Measured = measured) -> None:
        rows = []
        # Arithmetic is one thread's, so it is the same in all rates.
        groups = [("1 thread", _arithmetic(r)) for r in found.rates[:1]]
        groups += [(f"{r.devices} x {count_text(r.threads, 'thread')}", _memory(r)) for r in found.rates]
        for what, figures in groups:
            rows += [(what, name, f"{value / 1e9:.3g} G/s") for name, value in figures.items()]
        for c in found.collectives:
            if c.opcode == "all-reduce":
                (low, first), (high, last) = c.points[0], c.points[-1]
                text = f"{seconds_text(first)} for {low:.0f} bytes, {seconds_text(last)} for {high / 1e6:.3g} MB"
                rows.append((f"{c.members} {c.where}", "all-reduce", text))
        view.table(f"{count_text(found.cores, 'core')} of {found.cpu}", ("devices", "what", "measured"), rows)
        view.text("written to standard output" if aside else f"kept in {path}")

    view.result(data(), show)


def _arithmetic(rates: Any) -> dict[str, float]:
    """A few numbers per second of one thread, measured while all cores compute."""
    found = {
        f"{dtype} products, operations": max(2 * m * n * k / s for m, n, k, s in points)
        for dtype, points in rates.products.items()
    }
    return found | {f"{name}, elements": 1 / rates.operations[name] for name in _SHOWN if name in rates.operations}


def _memory(rates: Any) -> dict[str, float]:
    """Bytes per second of each device."""
    return {"bytes read in caches": 1 / rates.read[0][1], "bytes read from memory": 1 / rates.read[-1][1]}


_SHOWN = ("add f32", "exponential f32", "reduce-rows f32")


class _Bar:
    """Progress on stderr, where that is a terminal."""

    def __init__(self, *, shown: bool) -> None:
        self._bar: Any = None
        if shown:
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("calibrate", total=None)

    def __call__(self, what: str, done: int, of: int) -> None:
        if self._bar is not None:
            self._bar.update(self._task, description=what, completed=done, total=of)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
