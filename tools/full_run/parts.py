"""What a full run consists of, in the order in which it is run: what says most in an hour first.

A part's tests are those marked ``full`` in its paths; the part ``others`` has all that are in no other part, so that a
new test file is in the run by being marked. Limits are three times what a part took on two cores, and more.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from tools.full_run.run import Part

__all__ = ["PARTS", "PATHS"]

PYTHON = sys.executable
PYTEST = (PYTHON, "-m", "pytest", "-n", "auto", "--hypothesis-seed=0")
FULL = (*PYTEST, "--run-full", "-m", "full")

#: Where tests marked ``full`` are a part of their own.
PATHS: Mapping[str, tuple[str, ...]] = {}


def others() -> Part:
    left = tuple(f"--ignore={path}" for paths in PATHS.values() for path in paths)
    return Part("others", "all other tests marked full", (*FULL, *left), 240)


PARTS = (
    Part("checks", "ruff, mypy, import-linter", ("make", "check"), 15),
    Part("suite", "the tests of `make test`", PYTEST, 60),
    Part("newest", "what touches JAX, under the newest Python and JAX here", ("make", "test-newest"), 60),
    others(),
)
