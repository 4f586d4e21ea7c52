"""How the compiler's time grows with the program, shape by shape: ``python benchmarks/compiler_shapes.py [SIZE ...]``.

Processor seconds of reading, propagating, partitioning and lowering, for all sizes of one shape in turn.
"""

from __future__ import annotations

import sys
import time
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "partitioner"))

from growing_programs import SHAPES

from shardc.compiler.lower.pipeline import lower
from shardc.hlo.config import Config
from shardc.hlo.text.reader import read_hlo
from shardc.partitioner.partition import partition
from shardc.sharding.notations.tile_assignments import convert_to_axes
from shardc.sharding.propagate import propagate

SIZES = (2_000, 8_000, 32_000)
HEAD = ("shape", "instructions", "read", "propagate", "partition", "lower")


def row(shape: str, size: int) -> tuple[str, ...]:
    text = SHAPES[shape](size)
    marks = [time.process_time()]
    module = read_hlo(text)
    marks.append(time.process_time())
    module = propagate(convert_to_axes(module)).module
    marks.append(time.process_time())
    local = partition(module)
    marks.append(time.process_time())
    lower(local, Config())
    marks.append(time.process_time())
    count = sum(1 for _ in module.instructions())
    return (shape, f"{count:,}", *(f"{b - a:.2f} s" for a, b in pairwise(marks)))


def main() -> None:
    sizes = tuple(map(int, sys.argv[1:])) or SIZES
    print("| " + " | ".join(HEAD) + " |\n|" + " --- |" * len(HEAD))
    for shape in SHAPES:
        for size in sizes if shape != "nested loops" else tuple(s // 10 for s in sizes):
            print("| " + " | ".join(row(shape, size)) + " |", flush=True)


if __name__ == "__main__":
    main()
