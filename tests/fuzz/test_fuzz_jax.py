"""Random JAX programs give what ``jax.jit`` gives: transformations, odd sizes, prime meshes, uneven shardings.

``jax_drawer.draw_case`` makes the program of a seed; a failure prints the program made small. To look for more:
``python tests/fuzz/fuzz_jax.py FIRST LAST``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fuzz_child import run_fuzzer

HERE = Path(__file__).parent


def run_seeds(first: int, last: int) -> None:
    run_fuzzer("fuzz_jax.py", first, last, says=f"{last - first} programs, 0 failures")


@pytest.mark.parametrize(("first", "last"), [(0, 25), pytest.param(25, 50, marks=pytest.mark.full)])
def test_random_programs(first: int, last: int) -> None:
    run_seeds(first, last)


@pytest.mark.full
@pytest.mark.parametrize("first", range(1_000, 21_000, 250))
def test_many_random_programs(first: int) -> None:
    run_seeds(first, first + 250)


def test_a_failure_is_made_small() -> None:
    """A made-up fault, a sort whose operand is split, keeps the sort and little else."""
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import fuzz_jax
from jax_runs import case_of
from jax_shrink import shrink
def wrong(case):
    return any(s.op == "sort" for s in case.body.steps) and any(s and any(s) for s in case.specs)
seed = next(s for s in range(10_000) if wrong(case_of(s)) and len(case_of(s).body.steps) > 12)
small = shrink(case_of(seed), wrong)
assert wrong(small)
print(len(small.body.steps), len(small.mesh))
"""
    done = subprocess.run([sys.executable, "-c", code, str(HERE)], capture_output=True, text=True, check=True)
    steps, axes = map(int, done.stdout.split())
    assert steps <= 2
    assert axes == 1
