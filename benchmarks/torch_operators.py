"""PyTorch's operator database beside `shardc.from_torch`: a table of what agrees, is refused and differs.

``python -m benchmarks.torch_operators FILE...`` reads lines of `torch_operators_worker`, later ones in the place of
earlier ones; without files it runs the workers first, one child after another. Writes the table in docs/status.md.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.tables import insert, table

ROOT = Path(__file__).resolve().parents[1]
#: Seconds for a child, and how many operators it is given.
LIMIT, OPERATORS, CHUNK = 600, 702, 40

#: What a refusal is counted under: the first that is found in the error.
CAUSES: Mapping[str, str] = {
    "draws random numbers": "draws random numbers",
    "dynamic dimensions": "sizes or plain numbers depend on values",
    "torch.export cannot follow": "torch.export does not follow it",
    "the operator": "no row for the operator",
    "with these arguments": "a row refuses the arguments",
}


def run(mode: str, file: str, numbers: Iterable[int]) -> Iterable[str]:
    """Lines of workers for ``numbers``; what a child was at when it was stopped is left out."""
    left = list(numbers)
    while left:
        chunk, left = left[:CHUNK], left[CHUNK:]
        command = [sys.executable, "-m", "benchmarks.torch_operators_worker", mode, file, *map(str, chunk)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
            try:
                said, _ = child.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                child.kill()
                said, _ = child.communicate()
        yield from said.splitlines()
        begun = [json.loads(line)["starts"] for line in said.splitlines() if '"starts"' in line]
        left = [n for n in chunk if begun and n > begun[-1]] + left


def collected(lines: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """The verdicts of each operator; of one that ended its process, a verdict that says so."""
    found: dict[str, list[dict[str, Any]]] = {}
    title = ""
    for line in lines:
        said = json.loads(line)
        if "starts" in said:
            title = said["title"]
            found.setdefault(title, [{"kind": "differs", "why": "the process ended"}])
        elif "verdicts" in said:
            found[title] = said["verdicts"]
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
    lines = (line for f in files for line in Path(f).read_text().splitlines())
    found = collected(lines if files else run("samples", "evaluate", range(OPERATORS)))
    sections = {"torch-operators": section(found)}
    print(*insert(ROOT / "docs" / "status.md", sections), "written")


if __name__ == "__main__":
    main(sys.argv[1:])
