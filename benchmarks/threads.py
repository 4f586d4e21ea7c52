"""What users ask of other compilers, tried here: XLA and shardc beside each other, and the page that tells it.

python benchmarks/threads.py [NAME ...] [--write]

Both sides run the same JAX program on 8 devices in processes of their own, XLA's and those of shardc's plug-in. What
they send is counted by one counter on the compiled text, memory is each compiler's own figure, and the results
must agree. ``--write`` puts the tables into docs/threads.md.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent, shorten

import jaxlib
import numpy as np
from tables import insert, table
from threads_programs import THREADS, Thread

from shardc.hlo.text.reader import read_hlo
from shardc.partitioner.report import build_report

__all__ = ["HEAD", "Side", "measure", "page_sections"]

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "threads.md"
SIDES = {
    "XLA": {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"},
    "shardc": {"JAX_PLATFORMS": "shardc", "SHARDC_NUM_DEVICES": "8"},
}
HEAD = ("program", "asked", "XLA sends", "shardc sends", "XLA holds", "shardc holds")


@dataclass(frozen=True)
class Side:
    """What one compiler makes of a program: bytes that a device sends and holds, or why there is nothing."""

    wire_bytes: float = 0.0
    peak_bytes: int = 0
    collectives: str = ""
    error: str = ""
    result: np.ndarray | None = None

    @property
    def sent(self) -> str:
        """The bytes, and by which collectives."""
        return f"{self.wire_bytes:,.0f} B" + (f", {self.collectives}" if self.wire_bytes else "")


def measure(names: Sequence[str]) -> dict[str, dict[str, Side]]:
    """Both sides of the named programs, by program and side; raises ValueError where their results differ."""
    out: dict[str, dict[str, Side]] = {name: {} for name in names}
    for side, variables in SIDES.items():
        with tempfile.TemporaryDirectory() as folder:
            worker = Path(__file__).with_name("threads_worker.py")
            environment = {**os.environ, **variables}
            subprocess.run([sys.executable, str(worker), folder, *names], env=environment, check=True)
            for name in names:
                out[name][side] = _read(Path(folder), name)
    for name, sides in out.items():
        _compare(name, sides["XLA"].result, sides["shardc"].result)
    return out


def _read(folder: Path, name: str) -> Side:
    answer = json.loads((folder / f"{name}.json").read_text())
    if "error" in answer:
        return Side(error=answer["error"])
    report = build_report(read_hlo((folder / f"{name}.hlo").read_text()), peak_bytes=answer["peak_bytes"])
    ops = sorted({f"{c['op']}" for c in report["collectives"] if c["wire_bytes"]})
    return Side(report["wire_bytes"], report["peak_bytes"], ", ".join(ops), result=np.load(folder / f"{name}.npy"))


def _compare(name: str, theirs: np.ndarray | None, ours: np.ndarray | None) -> None:
    if theirs is None or ours is None:
        return
    far = np.abs(theirs - ours).max() / max(np.abs(theirs).max(), 1e-30)
    if not far <= 1e-4:
        raise ValueError(f"{name}: the results differ by {far} of the largest value")


def rows(found: dict[str, dict[str, Side]]) -> list[tuple[str, ...]]:
    """The table: a row for each program."""
    out = []
    for thread in THREADS:
        if thread.name in found:
            xla, ours = (found[thread.name][s] for s in SIDES)
            cells = [f"refused: {shorten(s.error, 90)}" if s.error else s.sent for s in (xla, ours)]
            cells[1] += f" ({thread.note})" if thread.note else ""
            peaks = ["" if s.error else f"{s.peak_bytes:,} B" for s in (xla, ours)]
            out.append((f"[`{thread.name}`](#{thread.name.replace('_', '-')})", thread.asked, *cells, *peaks))
    return out


def program_text(thread: Thread) -> str:
    """A section of the page: the threads, the program, and the command that shows it."""
    where = ", ".join(f"[{t}](https://github.com/{t.replace('#', '/issues/')})" for t in thread.threads)
    mesh = ", ".join(f"{axis}={size}" for axis, size in thread.mesh.items())
    code = dedent(inspect.getsource(thread.make)).strip()
    asked = f"Asked in {where}. " if where else ""
    return (
        f"### {thread.name.replace('_', ' ')}\n\n{asked}The mesh is `{mesh}`.\n\n```python\n{code}\n```\n\n"
        f"```sh\npython benchmarks/threads.py {thread.name}\n```\n"
    )


def page_sections() -> dict[str, str]:
    """What stands between the markers of the page."""
    found = measure([t.name for t in THREADS])
    note = f"Per device and call; XLA is that of jaxlib {jaxlib.__version__}.\n\n"
    return {"threads": note + table(HEAD, rows(found)), "programs": "\n".join(map(program_text, THREADS))}


def main() -> None:
    words = [w for w in sys.argv[1:] if w != "--write"]
    if "--write" in sys.argv:
        insert(PAGE, page_sections())
        return
    known = [t.name for t in THREADS]
    unknown = [w for w in words if w not in known]
    if unknown:
        raise SystemExit(f"no program is called {', '.join(unknown)}; the programs are {', '.join(known)}")
    names = [name for name in known if not words or name in words]
    print(table(HEAD, rows(measure(names))))


if __name__ == "__main__":
    main()
