"""The process that has one file of JAX's tests loaded: ``child.py FILE`` answers each case that it is told.

It writes the names of its cases first, then takes a case per line of standard input and writes what became of it, each
as a line of JSON on what was its standard output; what the tests print goes to standard error.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import sys
import time
import traceback
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

#: How much of a traceback is worth telling.
TOLD = 6000


class OneResult(unittest.TestResult):
    """What became of one case: the worst of what was told, and why."""

    outcome, why = "passed", ""

    def _fail(self, err: Any) -> None:
        self.outcome, self.why = "failed", "".join(traceback.format_exception(*err))[-TOLD:]

    def addError(self, test: Any, err: Any) -> None:  # noqa: N802
        self._fail(err)

    def addFailure(self, test: Any, err: Any) -> None:  # noqa: N802
        self._fail(err)

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:  # noqa: N802
        if err is not None:
            self._fail(err)

    def addSkip(self, test: Any, reason: str) -> None:  # noqa: N802
        if self.outcome == "passed":
            self.outcome, self.why = "skipped", reason

    def addUnexpectedSuccess(self, test: Any) -> None:  # noqa: N802
        self.outcome, self.why = "failed", "it passed, and the suite expects it to fail"


def cases_in(suite: Any) -> Iterator[unittest.TestCase]:
    for test in suite:
        if isinstance(test, unittest.TestCase):
            yield test
        else:
            yield from cases_in(test)


def load(path: Path) -> dict[str, unittest.TestCase]:
    """The cases of the file in their order; flags are read as if nothing were said on the command line."""
    sys.argv = [str(path)]
    sys.path.insert(0, str(path.parent))
    module = importlib.import_module(path.stem)
    from absl import flags
    from jax._src import test_util

    flags.FLAGS(sys.argv)
    found = cases_in(test_util.JaxTestLoader().loadTestsFromModule(module))
    return {f"{type(c).__name__}.{c._testMethodName}": c for c in found}


def answer(case: unittest.TestCase) -> dict[str, Any]:
    result, began = OneResult(), time.monotonic()
    unittest.TestSuite([type(case)(case._testMethodName)]).run(result)
    return {"outcome": result.outcome, "why": result.why, "seconds": round(time.monotonic() - began, 2)}


def main() -> None:
    faulthandler.enable()
    questions, answers = _taken(0, os.O_RDONLY), _taken(1, os.O_WRONLY)
    os.dup2(2, 1)
    cases = load(Path(sys.argv[1]))
    print(json.dumps(list(cases)), file=answers, flush=True)
    for line in questions:
        print(json.dumps(answer(cases[line.strip()])), file=answers, flush=True)


def _taken(descriptor: int, way: int) -> TextIO:
    """A stream of our own in place of a standard one, which becomes the empty device."""
    own = os.dup(descriptor)
    nothing = os.open(os.devnull, way)
    os.dup2(nothing, descriptor)
    os.close(nothing)
    return os.fdopen(own, "r" if way == os.O_RDONLY else "w", encoding="utf-8")


if __name__ == "__main__":
    main()
