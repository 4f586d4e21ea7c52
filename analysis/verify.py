"""Partitioned against unpartitioned, over seeded random inputs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from shardc.hlo.errors import InputError
from shardc.launcher.arrays.gather import gather
from shardc.launcher.driver.checked import Unpartitioned
from shardc.launcher.driver.compiled import compile_partitioned
from shardc.launcher.driver.executables import RemoteCompilers
from shardc.launcher.run.random_inputs import random_arguments
from shardc.partitioner.program import SourceProgram

__all__ = ["verify_program"]


def verify_program(
    program: SourceProgram, trials: int = 1, seed: int = 0, *, remote: RemoteCompilers | None = None
) -> list[dict[str, Any]]:
    """One row per trial and result, as `shardc.launcher.driver.checked.Comparison`.

    The unpartitioned program is run by the evaluator, also in float64 as the reference; the partitioned one is
    compiled (``remote`` as `compile_partitioned`) and runs on this job's devices. Raises `InputError` for programs that
    somebody else has partitioned.
    """
    propagated = program.propagate()
    whole = Unpartitioned.of(propagated)
    if whole is None:
        raise InputError(
            "the program is already partitioned, so there is no unpartitioned program to compare with",
            where=program.module.name,
            fix="give the program before partitioning",
        )
    compiled = compile_partitioned(propagated.partition(), remote=remote)
    rows = []
    for trial in range(trials):
        arguments = random_arguments([s for p in whole.module.parameters for s in p.shape.leaves()], seed + trial)
        got = [gather(r) for r in compiled.run(arguments)]
        rows += [{"trial": trial, **asdict(row)} for row in whole.compare(arguments, got)]
    return rows
