"""Ten models of Hugging Face's kinds beside eager PyTorch: the table in docs/status.md.

``python -m benchmarks.torch_models FOLDER`` runs a child for each model and mesh, and keeps what each says in FOLDER;
what lies there already is not run again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.hugging_face_models import MODELS
from benchmarks.tables import insert, table

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 1200
#: Title -> sizes of data and model, and the number of MPI ranks.
PLACES: Mapping[str, tuple[str, str, int]] = {"1": ("1", "1", 0), "8": ("2", "4", 0), "ranks": ("2", "2", 4)}
#: Columns of the table: what is compared, and where.
COLUMNS = (
    *(("forward", place) for place in PLACES), *(("loss", place) for place in PLACES),
    *(("parameters", place) for place in PLACES), ("rounding", "1"),
)  # fmt: skip


def _run(name: str, place: str, folder: Path) -> None:
    file = folder / f"{name}-{place}.jsonl"
    if file.exists():
        return
    data, model, ranks = PLACES[place]
    command = [sys.executable, "-m", "benchmarks.torch_models_worker", name, data, model]
    if ranks:
        command = [sys.executable, "-m", "shardc", "mpiexec", "-n", str(ranks), *command]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode:
        print(name, place, done.stderr[-500:])
    file.write_text("".join(f"{line}\n" for line in lines))


def _largest(folder: Path, name: str, place: str, key: str) -> str:
    """The largest figure of all ranks; empty where there is none."""
    file = folder / f"{name}-{place}.jsonl"
    said = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    figures = [one[key] for one in said if key in one]
    return f"{max(figures):.1e}" if figures else ""


def main(arguments: Sequence[str]) -> None:
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name in MODELS:
        for place in PLACES:
            _run(name, place, folder)
    where = {"1": "1 device", "8": "8 devices", "ranks": "4 ranks"}
    head = [f"{key}, {where[place]}" for key, place in COLUMNS[:-1]]
    rows = [[name, *(_largest(folder, name, place, key) for key, place in COLUMNS)] for name in MODELS]
    text = table(["model", *head, "PyTorch's loss, 32 beside 64 bits"], rows)
    print(*insert(ROOT / "docs" / "status.md", {"torch-models": text}), "written")


if __name__ == "__main__":
    main(sys.argv[1:])
