"""Partitioned against unpartitioned, over seeded random inputs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shardc.hlo.errors import InputError
from shardc.hlo.evaluate import evaluate
from shardc.launcher.array import gather
from shardc.launcher.random_inputs import random_arguments
from shardc.launcher.stages import Program
from shardc.partitioner.adopt import is_partitioned
from shardc.partitioner.equivalence import agree, first_difference
from shardc.partitioner.exactness import exact_results

__all__ = ["verify_program"]


def verify_program(program: Program, trials: int = 1, seed: int = 0) -> list[dict[str, Any]]:
    """One row per trial and result: ``agrees``, ``error`` and ``bound`` of `shardc.partitioner.equivalence.agree`.

    ``exact`` says that no rounding reaches the result, so that it has to agree to the bit; ``difference`` names the
    first element that does not.

    The unpartitioned program is run by the evaluator, also in float64 as the reference; the partitioned one is
    compiled and runs on this job's devices. Raises `InputError` for programs that somebody else has partitioned.
    """
    if is_partitioned(program.module):
        raise InputError(
            "the program is partitioned already: there is no unpartitioned one to compare it with",
            where=program.module.name,
            fix="give the program before partitioning",
        )
    propagated = program.propagate()
    module = propagated.module  # manual computations have a value over its mesh
    compiled = propagated.partition().compile()
    exact = exact_results(module)
    rows = []
    for trial in range(trials):
        arguments = random_arguments([s for p in module.parameters for s in p.shape.leaves()], seed + trial)
        got = [gather(r) for r in compiled.run(arguments)]
        with np.errstate(all="ignore"):
            calls = program.config.custom_calls
            want = evaluate(module, arguments, custom_calls=calls)
            reference = evaluate(module, arguments, float64=True, custom_calls=calls)
        names = module.result_names or ("",) * len(got)
        for index, (g, w, r) in enumerate(zip(got, want, reference, strict=True)):
            result = agree(g, w, r, exact=exact[index])
            rows.append(
                {
                    "trial": trial,
                    "index": index,
                    "name": names[index],
                    "exact": exact[index],
                    "agrees": result.ok,
                    "error": _finite(result.error),
                    "bound": _finite(result.bound),
                    "difference": "" if result.ok else first_difference(g, w, r, bound=result.bound),
                }
            )
    return rows


def _finite(x: float) -> float:
    """JSON has no infinity."""
    return x if math.isfinite(x) else 1e308
