"""Everything that is to be known about shardc on a GPU, with one call: results, bandwidth, XLA beside it, the host's
time, compilation. Prints a table; without a GPU it says so and ends with 1.

python benchmarks/gpu [--write] [--rounds N]    measure (--write: into docs/gpu_results.json and docs/gpu.md)
python benchmarks/gpu --show                    the table of what was measured before
python benchmarks/gpu --emulated                a tiny run on the emulated GPU: that this script works
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from gpu_programs import BOUND_BY_MEMORY, PRODUCTS, STEP, TINY
from gpu_table import as_table
from tables import insert

FOLDER = Path(__file__).resolve().parent
DOCS = FOLDER.parents[1] / "docs"
PROGRAMS = (*BOUND_BY_MEMORY, *PRODUCTS, STEP)
FIGURES = ("demo", "nccl", *PROGRAMS, "host")
_PATIENCE_SECONDS = 1200
_COPY_BYTES = 512 << 20
#: How much sums of results may differ, of the sum of what is added.
_TOLERANCE = 0.01


class Unanswered(Exception):
    """A side failed: the figure stays empty, with this as the reason."""


class Side:
    """A process of ``gpu_side.py``. One that failed is started again for the next question."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self._command = [sys.executable, str(FOLDER / "gpu_side.py"), *arguments]
        self._environment = {**os.environ, **environment}
        self._process: Any = None

    def ask(self, do: str, **question: Any) -> dict[str, Any]:
        """The answer; `Unanswered` for an error, the end of the process, or none within the patience."""
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self._environment
            )
        patience = threading.Timer(_PATIENCE_SECONDS, self._process.kill)
        patience.start()
        try:
            self._process.stdin.write(json.dumps({"do": do, **question}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        finally:
            patience.cancel()
        answer: dict[str, Any] = json.loads(line) if line else {"error": f"the process ended at {do!r}"}
        if "error" in answer:
            raise Unanswered(answer["error"].splitlines()[0])
        return answer

    def close(self) -> None:
        if self._process is not None:
            self._process.stdin.close()
            self._process.wait(timeout=60)


class Results:
    """Figures by key, and why some are missing."""

    def __init__(self, machine: str) -> None:
        self.machine = machine
        self.measured: dict[str, float] = {}
        self.missing: dict[str, str] = {}

    @contextmanager
    def trying(self, *keys: str) -> Iterator[None]:
        """What fails inside leaves ``keys`` without figures."""
        try:
            yield
        except Unanswered as error:
            for key in keys:
                if key not in self.measured:
                    self.missing[key] = f"not measured: {error}"

    def as_dict(self) -> dict[str, Any]:
        return {"machine": self.machine, "measured": self.measured, "missing": self.missing}


def measure(ours: Side, xla: Side, results: Results, wanted: Sequence[str], rounds: int, small: bool) -> None:
    """The figures of ``wanted``: programs, and what belongs to none of them."""
    programs = [name for name in PROGRAMS if name in wanted]
    if "demo" in wanted:
        with results.trying("demo"):
            results.measured["demo"] = ours.ask("demo")["difference"]
    if "nccl" in wanted:
        with results.trying("nccl"):
            results.measured["nccl"] = float(not ours.ask("nccl", count=1 << 20)["equal"])
    rate: float | None = None
    with results.trying(*(f"share {name}" for name in programs if name in BOUND_BY_MEMORY)):
        rate = ours.ask("copy", nbytes=1 << 16 if small else _COPY_BYTES)["rate"]
    for name in programs:
        with results.trying(f"share {name}", f"xla {name}", *(["compile"] if name == STEP else [])):
            _one_program(results, ours, xla, name, rounds, rate)
    if "host" in wanted:
        with results.trying("host"):
            ours.ask("compile", program=TINY)
            ours.ask("host", steps=20)
            results.measured["host"] = 1e6 * ours.ask("host", steps=20 if small else 200)["seconds"]


def _one_program(results: Results, ours: Side, xla: Side, name: str, rounds: int, rate: float | None) -> None:
    """Both sides in turn; medians. What comes out at first has to be the same."""
    told = ours.ask("compile", program=name)
    first = ours.ask("run", steps=1)
    ours.ask("run", steps=2)
    once = ours.ask("run", steps=3)["seconds"]
    steps = max(2, min(200, int(0.5 / once)))
    times = [ours.ask("run", steps=steps)["seconds"]]
    if rate is not None and told["moved_bytes"]:
        for _ in range(rounds - 1):
            times.append(ours.ask("run", steps=steps)["seconds"])  # noqa: PERF401 - measured one by one
        results.measured[f"share {name}"] = told["moved_bytes"] / statistics.median(times) / rate
    theirs = xla.ask("compile", program=name)
    if name == STEP:
        results.measured["compile"] = told["seconds"] / theirs["seconds"]
    wanted = xla.ask("run", steps=1)
    if not abs(first["value"] - wanted["value"]) <= _TOLERANCE * wanted["size"]:
        results.measured.pop(f"share {name}", None)
        raise Unanswered(f"results differ: {first['value']:.6g}, XLA {wanted['value']:.6g}")
    xla.ask("run", steps=2)
    ratios = [ours.ask("run", steps=steps)["seconds"] / xla.ask("run", steps=steps)["seconds"] for _ in range(rounds)]
    results.measured[f"xla {name}"] = statistics.median(ratios)


def sides(target: str, cache: str, verbose: bool) -> tuple[Side, Side]:
    """Ours with an empty cache, and XLA, which shall not take all memory. Beside the emulation XLA has its CPU."""
    emulated = target == "cuda-emulated"
    options = ["--small"] * emulated + ["--verbose"] * verbose
    ours = Side("shardc", target, *options, JAX_PLATFORMS="cpu", SHARDC_CACHE_DIR=cache)
    platform = "cpu" if emulated else "cuda"
    return ours, Side("xla", platform, *options, JAX_PLATFORMS=platform, XLA_PYTHON_CLIENT_PREALLOCATE="false")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python benchmarks/gpu", description=__doc__.splitlines()[0])
    parser.add_argument("--emulated", action="store_true", help="a tiny run on the emulated GPU")
    parser.add_argument("--write", action="store_true", help="keep the figures in docs/")
    parser.add_argument("--show", action="store_true", help="only show what was measured before")
    parser.add_argument("--only", nargs="+", choices=FIGURES, metavar="FIGURE", help=f"some of: {', '.join(FIGURES)}")
    parser.add_argument("--verbose", action="store_true", help="tracebacks of what fails")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="runs of each side, in turn")
    options = parser.parse_args(arguments)
    file = DOCS / "gpu_results.json"
    if options.show:
        print(as_table(json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}))
        return 0
    if options.write and (options.emulated or options.only):
        parser.error("only a whole run on a GPU is kept")
    with tempfile.TemporaryDirectory(prefix="shardc-gpu-") as cache:
        ours, xla = sides("cuda-emulated" if options.emulated else "cuda", cache, options.verbose)
        try:
            results = Results(_machine(ours, xla, options.emulated))
            measure(ours, xla, results, options.only or FIGURES, options.rounds, options.emulated)
        except Unanswered as error:
            print(f"Nothing was measured: {error}", file=sys.stderr)
            return 1
        finally:
            ours.close()
            xla.close()
    print(as_table(results.as_dict()))
    if options.write:
        file.write_text(json.dumps(results.as_dict(), indent=2) + "\n", encoding="utf-8")
        insert(DOCS / "gpu.md", {"gpu": as_table(results.as_dict())})
    return 0


def _machine(ours: Side, xla: Side, emulated: bool) -> str:
    """Where figures come from, in words; `Unanswered` when there is no GPU."""
    facts = ours.ask("describe")
    if emulated:
        return "A tiny run on the emulated GPU, beside XLA on the CPU: that this script works, and no more."
    try:
        theirs = "JAX " + xla.ask("describe")["jax"]
    except Unanswered as error:
        theirs = f"no XLA beside it ({error})"
    return f"{facts['name']}, compute capability {facts['capability']}, {facts['driver']}; {theirs}."


if __name__ == "__main__":
    sys.exit(main())
