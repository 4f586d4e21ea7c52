"""``torch.compile`` with our backend beside the same program called directly: a table in docs/benchmarks.md.

``python -m benchmarks.torch_compile [ROUNDS]``, with the extra ``torch``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.tables import insert, table

ROOT = Path(__file__).resolve().parents[1]
HEAD = (
    "transformer, 2 layers of 256", "devices", "eager PyTorch", "program called directly", "torch.compile",
    "compile / direct", "native steps in it", "our host time in it",
)  # fmt: skip


def _said(devices: str, arguments: Sequence[str]) -> Iterator[Mapping[str, float]]:
    command = [sys.executable, "-m", "benchmarks.torch_compile_worker", devices, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            yield json.loads(line)


def rows(arguments: Sequence[str]) -> Iterator[list[str]]:
    for devices in ("1", "8"):
        for said in _said(devices, arguments):
            times = [f"{said[k]:.1f} ms" for k in ("eager", "direct", "compile")]
            ratio = f"{said['compile'] / said['direct']:.2f}"
            inner = [f"{said[k]:.1f} ms" for k in ("native", "host")]
            yield [str(said["what"]), devices, *times, ratio, *inner]


def main(arguments: Sequence[str]) -> None:
    text = table(HEAD, list(rows(arguments)))
    print(text, *insert(ROOT / "docs" / "benchmarks.md", {"torch-compile": text}), "written")


if __name__ == "__main__":
    main(sys.argv[1:])
