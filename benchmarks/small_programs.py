"""Small programs: the first ones of a process, and those that eager ``jnp`` makes, beside XLA on this processor.

Both sides are JAX on a platform, in processes of their own, one after the other; the middle of several.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tables import table

__all__ = ["section"]

_TRIES = 3


def section() -> str:
    """The tables for docs/benchmarks.md."""
    with tempfile.TemporaryDirectory() as folder:
        return _starts(Path(folder)) + "\n" + _programs(Path(folder))


def _run(what: str, platform: str, folder: Path) -> dict[str, Any]:
    environment = {**os.environ, "JAX_PLATFORMS": platform, "SHARDC_CACHE_DIR": str(folder)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    command = [sys.executable, str(Path(__file__).with_name("small_worker.py")), what]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _forget(folder: Path) -> None:
    """The programs, not the native code of the plug-in itself."""
    shutil.rmtree(folder / "executables", ignore_errors=True)


def _middle(runs: Sequence[Mapping[str, float]], key: str) -> float:
    return statistics.median(run[key] for run in runs)


def _starts(folder: Path) -> str:
    _run("start", "cpu", folder)  # Python's own files
    new = _run("start", "shardc", folder)
    cold, warm, theirs = [], [], []
    for _ in range(_TRIES):
        _forget(folder)
        cold.append(_run("start", "shardc", folder))
        warm.append(_run("start", "shardc", folder))
        theirs.append(_run("start", "cpu", folder))
    rows = [
        ("start of the client, first time on a machine", new["client"], _middle(theirs, "client")),
        ("start of the client", _middle(warm, "client"), _middle(theirs, "client")),
        ("first jit of a process, program unknown", _middle(cold, "first"), _middle(theirs, "first")),
        ("first jit of a process, program in the cache", _middle(warm, "first"), _middle(theirs, "first")),
        ("second jit, program unknown", _middle(cold, "second"), _middle(theirs, "second")),
        ("second jit, program in the cache", _middle(warm, "second"), _middle(theirs, "second")),
        ("jnp.ones(3) after these", _middle(cold, "ones"), _middle(theirs, "ones")),
    ]
    head = ("what a process waits for", "shardc", "XLA:CPU", "shardc / XLA")
    return table(head, [(what, _ms(a), _ms(b), f"{a / b:.2f}") for what, a, b in rows])


def _programs(folder: Path) -> str:
    cold, warm, theirs = [], [], []
    for _ in range(_TRIES):
        _forget(folder)
        cold.append(_run("programs", "shardc", folder))
        warm.append(_run("programs", "shardc", folder))
        theirs.append(_run("programs", "cpu", folder))
    rows, ratios = [], []
    for name in cold[0]["programs"]:
        ours, kept, other = (_middle([r["programs"] for r in runs], name) for runs in (cold, warm, theirs))
        ratios.append(ours / other)
        rows.append((name, _ms(ours), _ms(kept), _ms(other), f"{ours / other:.2f}"))
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    rows.append((f"**{len(ratios)} programs, geometric mean**", "", "", "", f"**{mean:.2f}**"))
    for key, what in (("eager", "all of them called without jit"), ("again", "and once more")):
        ours, kept, other = (_middle(runs, key) for runs in (cold, warm, theirs))
        rows.append((what, _ms(ours), _ms(kept), _ms(other), f"{ours / other:.2f}"))
    above = sum(r > 1 for r in ratios)
    head = ("compile time of", "shardc", "from the cache", "XLA:CPU", "shardc / XLA")
    return table(head, rows) + f"\n{above} of {len(ratios)} take longer than XLA's.\n"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"
