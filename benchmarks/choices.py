"""The solver on the instances of the ASPLOS 2025 contest on intra-operator parallelism, beside what was published.

    python benchmarks/choices.py FOLDER [G B P ...]

FOLDER has the contest's files, ``asplos-2025-iopddl-G.json.gz`` and so on, as google/iopddl has them. The published
figures are the least cost of the twenty teams, each within one to five minutes on eight cores, and XLA's own solver.
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shardc.partitioner.strategy.solve.problem import ChoiceProblem, MemoryUse, PairCost
from shardc.partitioner.strategy.solve.solve import solve_choice

#: The contest's final results: the least cost of all teams, and XLA's.
BEST = {
    "A": 6548641531,
    "B": 532843,
    "C": 84102445260,
    "D": 313613524736,
    "E": 338965335230,
    "F": 364364563561,
    "G": 217039,
    "H": 527715404257,
    "I": 583706456444,
    "J": 1360981630371,
    "K": 2274276676,
    "L": 1970993742,
    "M": 49928460991,
    "N": 202739586553,
    "O": 222880199765,
    "P": 662197407330,
    "Q": 526776842042,
    "R": 371899551572,
    "S": 1534613444,
    "T": 682895254913,
    "U": 2569342178,
    "V": 1632051,
    "W": 11818845467155,
    "X": 280461191177,
    "Y": 621176568278,
}
XLA = {
    "A": 13214846074,
    "B": 990205,
    "C": 4195881092919,
    "E": 6638829816582,
    "F": 2788507105840,
    "G": 1264777,
    "H": 7746779635221,
    "I": 6552890513792,
    "P": 651833115436,
    "Q": 1995944800323,
}
#: Costs from here on stand for what is not allowed.
FORBIDDEN = 1e15


def read_instance(path: Path) -> ChoiceProblem:
    """The problem of a contest's file."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    data: dict[str, Any] = json.loads(text)["problem"]
    nodes, edges = data["nodes"], data["edges"]
    costs = tuple(_costs(c) for c in nodes["costs"])
    known: dict[tuple[object, ...], np.ndarray] = {}
    pairs = []
    for (a, b), table in zip(edges["nodes"], edges["costs"], strict=True):
        shape = (len(costs[a]), len(costs[b]))
        key = (shape, *table)
        if key not in known:
            known[key] = _costs(table).reshape(shape)
        pairs.append(PairCost(a, b, known[key]))
    spans = nodes["intervals"]
    uses = tuple(
        MemoryUse(v, start, stop, np.array(amounts, float))
        for v, ((start, stop), amounts) in enumerate(zip(spans, nodes["usages"], strict=True))
        if start < stop
    )
    times = max(stop for _, stop in spans) if "usage_limit" in data else 0
    limits = np.full(times, float(data.get("usage_limit", 0)))
    return ChoiceProblem(costs, tuple(pairs), limits, uses if times else ())


def _costs(numbers: Sequence[float]) -> np.ndarray:
    costs = np.array(numbers, float)
    costs[costs >= FORBIDDEN] = np.inf
    return costs


def main(folder: str, *names: str) -> None:
    print("instance   variables       pairs         cost        bound    gap  published       XLA  seconds  by")
    for path in sorted(Path(folder).glob("*.json*")):
        name = path.name.split(".")[0].rpartition("-")[2]
        if names and name not in names:
            continue
        problem = read_instance(path)
        begun = time.perf_counter()
        answer = solve_choice(problem)
        seconds = time.perf_counter() - begun
        lacks = "" if answer.excess is None else f", lacks {answer.excess.found:.3g} in row {answer.excess.row}"
        published, xla = (f"{answer.cost / t[name]:.3f}x" if name in t else "-" for t in (BEST, XLA))
        print(
            f"{name:8} {len(problem.costs):11,} {len(problem.pairs):11,} {answer.cost:12.6g} {answer.bound:12.6g} "
            f"{answer.gap:6.2%} {published:>10} {xla:>9} {seconds:8.1f}  {answer.method}{lacks}",
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
