"""One rank of a job in which rank 1 does something else in its step 10: ``differing_worker.py CASE``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

import shardc
from shardc.hlo.errors import ShardcError
from shardc.hlo.text.reader import read_hlo
from shardc.launcher.driver.compiled import Compiled
from shardc.stages.stages import Program

ALONE = "ROOT y = $T$[4] multiply(x, rates)"
TOGETHER = """product = $T$[4] multiply(x, rates)
  ROOT y = $T$[4] all-reduce(product), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=sum"""
TEXT = """HloModule $NAME$, num_partitions=2

sum {
  a = $T$[] parameter(0)
  b = $T$[] parameter(1)
  ROOT s = $T$[] add(a, b)
}

ENTRY main_spmd {
  x = $T$[4] parameter(0), sharding={devices=[2]<=[2]}, metadata={op_name="x"}
  given = $T$[] parameter(1), sharding={replicated}
  factor = $T$[] constant($FACTOR$)
  rate = $T$[] multiply(given, factor)
  rates = $T$[4] broadcast(rate), dimensions={}
  $BODY$
}
"""


def program(name: str, body: str = TOGETHER, dtype: str = "f32", factor: float = 1) -> Compiled:
    values = {"BODY": body, "NAME": name, "T": dtype, "FACTOR": f"{factor:g}"}
    text = TEXT
    for key, value in values.items():
        text = text.replace(f"${key}$", value)
    return Program(read_hlo(text, name)).propagate().partition().compile()


def main(case: str) -> None:
    rank = shardc.process_index()
    x = np.arange(8, dtype=np.float32)
    train = program("train", ALONE if case == "alone" else TOGETHER, factor=1 + rank * (case == "constant"))
    evaluate = program("evaluate")
    arguments = [x + rank * (case == "first"), np.float32(1)]
    train.run(arguments)
    evaluate.run([x, np.float32(1)])

    def step(n: int, odd: bool) -> None:
        match case:
            case "scalar" | "alone":
                train.run([x, 1.0 + n + 0.5 * odd])
            case "batch":
                if not odd:
                    train.run([x + n, np.float32(1)])
            case "program":
                (evaluate if odd else train).run([x, np.float32(1)])
            case "left-out":
                if not odd:
                    train.run([x, np.float32(1)])
                evaluate.run([x, np.float32(1)])
            case "caught":
                caught(train, [x[:1] if odd else x, np.float32(1)])
            case "dtype":
                (program("train64", dtype="f64") if odd else train).run([x.astype("f8") if odd else x, 1.0])

    for n in range(2, 2000):
        step(n, rank == 1 and n == 10)
    print("nobody noticed", file=sys.stderr)


def caught(train: Any, arguments: Sequence[Any]) -> None:
    try:
        train.run(arguments)
    except ShardcError as e:
        if "shape" not in e.what:
            raise


if __name__ == "__main__":
    main(sys.argv[1])
