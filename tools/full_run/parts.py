"""What a full run consists of, in the order in which it is run: what says most in an hour first.

A part's tests are those marked ``full`` in its paths that no more special part has; ``others`` has those in nobody's,
so that a new test file is in the run by being marked. Limits are for two cores, and more than twice what a part took.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import PurePath

from tools.full_run.run import Part

__all__ = ["PARTS", "PATHS"]

WORKERS = ("-n", os.environ.get("JOBS", "auto"), "--dist", "worksteal")
PYTEST = (sys.executable, "-m", "pytest", *WORKERS, "--hypothesis-seed=0")

#: Where the tests marked ``full`` of a part are.
PATHS: Mapping[str, tuple[str, ...]] = {
    "libraries": ("tests/libraries",),
    "sharding": ("tests/sharding",),
    "frontends": ("tests/frontends",),
    "service": ("tests/service",),
    "running": ("tests/collectives", "tests/launcher"),
    "compiler": ("tests/compiler", "tests/native"),
    "partitioner": ("tests/partitioner",),
    "resharding": ("tests/partitioner/test_reshard.py",),
    "partitioner-fuzzer": ("tests/partitioner/test_fuzz.py", "tests/partitioner/test_small_sizes.py"),
    "jax-fuzzer": ("tests/fuzz/test_fuzz_jax.py",),
    "text-fuzzer": ("tests/fuzz/test_fuzz_texts.py",),
    "jax-suite": ("tests/conformance/jax_suite",),
}


def full(name: str, what: str, minutes: float) -> Part:
    """The tests marked ``full`` in the paths of ``name``, or in nobody's."""
    own = PATHS.get(name, ("tests",))
    others = [p for paths in PATHS.values() for p in paths if p not in own]
    left = [f"--ignore={p}" for p in others if any(PurePath(p).is_relative_to(o) for o in own)]
    return Part(name, what, (*PYTEST, "--run-full", "-m", "full", *left, *own), minutes)


PARTS = (
    Part("checks", "ruff, mypy, import-linter", ("make", "check"), 15),
    Part("suite", "the tests of `make test`", PYTEST, 90),
    Part("newest", "what touches JAX, under the newest Python and JAX here", ("make", "test-newest"), 60),
    full("libraries", "programs of flax, optax, diffrax and others beside `jax.jit`", 60),
    full("sharding", "rules and propagation beside Shardy's on many random programs, the audit at length", 120),
    full("frontends", "all functions of JAX and NumPy, compiled and partitioned", 120),
    full("jax-suite", "JAX's own tests that pass on XLA:CPU, on the platform shardc", 120),
    full("service", "loads, kills, attacks and drawn requests at length", 120),
    full("running", "collectives, faults at every collective, resharding of arrays, 10,000 steps", 240),
    full("compiler", "kernels in all types, for other CPUs and GPUs, and mathematical functions at length", 240),
    full("others", "all other tests marked full", 120),
    full("partitioner", "operations, windows, sorts, transforms and bits on many random layouts; XLA beside it", 300),
    full("resharding", "all pairs of layouts", 300),
    full("text-fuzzer", "mutated HLO and StableHLO texts", 120),
    full("partitioner-fuzzer", "random programs on random meshes", 300),
    full("jax-fuzzer", "random JAX programs beside `jax.jit`", 600),
)
