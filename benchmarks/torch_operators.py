"""PyTorch's operator database beside `shardc.from_torch`: a table of what agrees, is refused and differs.

``python -m benchmarks.torch_operators FILE...`` reads lines of `torch_operators_worker`, later ones in the place of
earlier ones; without files it runs the workers first, two side by side, and keeps their lines in ``build/``. Writes
the tables in docs/status.md: operators of the database by their samples, and core ATen operators by calls of their own.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.tables import insert, table

ROOT = Path(__file__).resolve().parents[1]
#: How many operators the database has, and how many a child is given; rows of children that run side by side.
OPERATORS, CHUNK, PARTS = 702, 40, 2

#: What a refusal is counted under: the first that is found in the error.
CAUSES: Mapping[str, str] = {
    "draws random numbers": "draws random numbers",
    "depend on values": "sizes or plain numbers depend on values",
    "without in-place changes": "the argument changes its size in place",
    "torch.export cannot follow": "torch.export does not follow it",
    "the operator": "no row for the operator",
    "with these arguments": "a row refuses the arguments",
}


def run(mode: str, file: str, numbers: Sequence[int]) -> Iterable[str]:
    """Lines of workers for ``numbers``. An operator that ends its worker has no verdict; the next worker goes on behind
    it. RuntimeError where a worker ends before its first operator."""
    left = list(numbers)
    while left:
        chunk, left = left[:CHUNK], left[CHUNK:]
        last = None
        for line in _said(mode, file, *map(str, chunk)):
            yield line
            last = json.loads(line).get("starts", last)
        if last is None:
            raise RuntimeError(f"the worker for {mode} {chunk[0]} to {chunk[-1]} ended before its first operator")
        left = [n for n in chunk if n > last] + left


def _said(*arguments: str) -> Iterator[str]:
    """The lines of a worker until it ends."""
    command = [sys.executable, "-m", "benchmarks.torch_operators_worker", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        yield from child.stdout


def in_parts(mode: str, file: str, count: int, kept: Path) -> list[str]:
    """Lines of `PARTS` rows of workers side by side, for ``count`` numbers; written to ``kept`` as they come."""
    kept.parent.mkdir(exist_ok=True)
    with kept.open("w", buffering=1) as log, ThreadPoolExecutor(PARTS) as pool:

        def part(k: int) -> list[str]:
            lines = []
            for line in run(mode, file, range(k, count, PARTS)):
                lines.append(line)
                log.write(line)
            return lines

        return [line for lines in pool.map(part, range(PARTS)) for line in lines]


def core_lines() -> list[str]:
    """Lines for the calls of core operators, which are recorded first."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "calls"
        for _ in _said("record", str(file)):
            pass
        return in_parts("calls", str(file), len(pickle.loads(file.read_bytes())), ROOT / "build/torch-core.jsonl")


def collected(lines: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """The verdicts of each operator; of one that ended its process, a verdict that says so. Lines of workers that ran
    side by side are mixed: an operator's number joins its two lines."""
    found: dict[str, list[dict[str, Any]]] = {}
    titles: dict[int, str] = {}
    for line in lines:
        said = json.loads(line)
        if "starts" in said:
            title = titles[said["starts"]] = said["title"]
            found.setdefault(title, [{"kind": "differs", "why": "the process ended"}])
        elif "verdicts" in said:
            found[titles[said["number"]]] = said["verdicts"]
    return found


def kind(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """What all samples of an operator come to: the worst of them."""
    kinds = {v["kind"] for v in verdicts}
    return next((k for k in ("differs", "refused", "agrees") if k in kinds), "skipped")


def cause(verdicts: Sequence[Mapping[str, Any]]) -> str:
    why = next(v["why"] for v in verdicts if v["kind"] == "refused")
    return next((text for part, text in CAUSES.items() if part in why), "another reason")


def section(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """The table of a database, and what is missing by its causes."""
    kinds = Counter(kind(v) for v in found.values())
    judged = sum(n for k, n in kinds.items() if k != "skipped")
    rows = [[k, str(kinds[k]), f"{100 * kinds[k] / judged:.1f} %"] for k in ("agrees", "refused", "differs")]
    text = table(["operators", "count", "of those with a result"], rows)
    causes: dict[str, list[str]] = {}
    for title, verdicts in found.items():
        if kind(verdicts) == "refused":
            causes.setdefault(cause(verdicts), []).append(title)
        elif kind(verdicts) == "differs":
            causes.setdefault("differs", []).append(title)
    missing = [[why, ", ".join(f"`{t}`" for t in sorted(titles))] for why, titles in sorted(causes.items())]
    return f"{text}\n{table(['cause', 'operators'], missing)}" if missing else text


def main(files: Sequence[str]) -> None:
    """Write the tables of lines in ``files``, of which those named ``core`` have calls of core operators."""
    parts: dict[str, list[str]] = {}
    if files:
        for file in files:
            name = "torch-core" if "core" in Path(file).name else "torch-operators"
            parts.setdefault(name, []).extend(Path(file).read_text().splitlines())
    else:
        samples = in_parts("samples", "evaluate", OPERATORS, ROOT / "build/torch-operators.jsonl")
        parts = {"torch-core": core_lines(), "torch-operators": samples}
    sections = {name: section(collected(lines)) for name, lines in parts.items()}
    print(*insert(ROOT / "docs" / "status.md", sections), "written")


if __name__ == "__main__":
    main(sys.argv[1:])
