"""Predicted against measured step times on this computer: `shardc calibrate`, then every program of
`validity_programs` on 1, 2 and 4 devices, as MPI ranks and as virtual devices of one process.

python benchmarks/validity.py [--rounds N] [--keep] [PROGRAM ...]

Leave the computer alone meanwhile. The error is predicted over measured, less one; measured is the median over rounds.
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

HERE = Path(__file__).parent
DEVICES = (1, 2, 4)
HEAD = ("program", "devices", "ranks", "predicted", "error", "virtual", "predicted", "error")
#: Seconds that one job may take.
_LIMIT = 400

#: By number of devices: (answers of virtual devices with both predictions, answers of ranks), by program.
Found = dict[int, tuple[dict[str, Any], dict[str, Any]]]


def measure(rounds: int = 7, programs: Sequence[str] = (), *, calibrate: bool = True) -> Found:
    """Everything measured and predicted with a fresh calibration in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ}
        if calibrate:
            environment["XDG_DATA_HOME"] = folder
            _run([sys.executable, "-m", "shardc", "calibrate", "--quiet"], environment)
        worker = [sys.executable, str(HERE / "validity_worker.py")]
        found: Found = {}
        for n in DEVICES:
            out, job = str(Path(folder, f"virtual-{n}.json")), str(Path(folder, f"ranks-{n}.json"))
            machines = "this" if n == 1 else "this,this-virtual"
            _run([*worker, out, str(n), str(rounds), machines, *programs], environment)
            ranks = {}
            if n > 1:
                start = [sys.executable, "-m", "shardc", "mpiexec", "-n", str(n)]
                _run([*start, *worker, job, str(n), str(rounds), "-", *programs], environment)
                ranks = json.loads(Path(job).read_text())
            found[n] = (json.loads(Path(out).read_text()), ranks)
    return found


def _run(command: Sequence[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_LIMIT, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed ({done.returncode})\n{done.stderr[-2000:]}")


def rows(found: Found) -> list[tuple[str, ...]]:
    """One row per program and number of devices; one device is one rank and no virtual devices."""
    out = []
    names = list(found[1][0])
    for name in names:
        for n, (virtual, ranks) in found.items():
            alone = virtual[name] if n == 1 else ranks[name]
            predicted = virtual[name]["predicted"]
            cells = _cells(alone["measured"], predicted["this"])
            beside = _cells(virtual[name]["measured"], predicted["this-virtual"]) if n > 1 else ("", "", "")
            out.append((virtual[name]["title"] if n == 1 else "", str(n), *cells, *beside))
    return out


def _cells(measured: float, predicted: float) -> tuple[str, str, str]:
    return f"{measured * 1e3:.3g} ms", f"{predicted * 1e3:.3g} ms", f"{100 * (predicted / measured - 1):+.0f} %"


def errors(found: Found) -> dict[str, list[float]]:
    """Absolute errors by kind of devices and their number."""
    out: dict[str, list[float]] = {}
    for n, (virtual, ranks) in found.items():
        for name, answer in virtual.items():
            alone = answer if n == 1 else ranks[name]
            out.setdefault(f"{n} rank{'s' * (n > 1)}", []).append(_error(alone, answer["predicted"]["this"]))
            if n > 1:
                out.setdefault(f"{n} virtual devices", []).append(_error(answer, answer["predicted"]["this-virtual"]))
    return out


def _error(answer: Mapping[str, Any], predicted: float) -> float:
    return abs(predicted / float(answer["measured"]) - 1)


def summary(found: Found) -> str:
    """The medians, as a sentence."""
    by_kind = errors(found)
    parts = [f"{kind}: {100 * statistics.median(e):.0f} %" for kind, e in by_kind.items()]
    every = [e for found_errors in by_kind.values() for e in found_errors]
    return f"Median error {100 * statistics.median(every):.0f} % ({'; '.join(parts)}).\n"


def main() -> None:
    from tables import table

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--keep", action="store_true", help="use the calibration that is there")
    options = parser.parse_args()
    found = measure(options.rounds, options.programs, calibrate=not options.keep)
    print(table(HEAD, rows(found)))
    print(summary(found))


if __name__ == "__main__":
    main()
