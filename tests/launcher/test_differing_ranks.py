"""A rank that computes something else, is given something else or leaves out a step is named at once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.mpi

#: What is said in each case: by ranks that see each other's memory, and by those that send messages.
CALLS = "fix: call the same programs in the same order on all ranks"
HERE = {
    "constant": r"they differ in their constants and operations.* \(ranks \[0\] have \w+; ranks \[1\] have \w+\)",
    "first": r"values: ranks \[0\] have float32\[8\] of .*; ranks \[1\] have .*\n.*where: argument 0 \(x\)",
    "scalar": r"rank (\d) has another value than rank \d in step 10 of train\n.*where: argument 1",
    "alone": r"rank (\d) has another value than rank \d in or before step \d+ of train\n.*where: argument 1",
    "batch": r"rank (\d) has another value than rank \d in step 10 of train\n.*where: argument 0 \(x\)",
    "program": r"rank 0 .*: it waits in all-reduce %y .* of train, step 10,.*\n.*"
    rf"rank 1 .*: it waits in all-reduce %y .* of evaluate, step 2,(.*\n)*.*{CALLS}",
    "left-out": rf"rank 0 .* of train, step 10,.*\n.*rank 1 .* of evaluate, step 10,(.*\n)*.*{CALLS}",
    "caught": r"rank (0 is in step 10 of train, but rank 1 is in step 11|"
    r"1 is in step 11 of train, but rank 0 is in step 10)",
    "dtype": rf"rank 0 .*: it waits in all-reduce %y .* of train, step 10,.*\n.*"
    rf"rank 1 .*: it waits for the other ranks in the compilation of train64 at .*, (.*\n)*.*{CALLS}",
}
THERE = {case: HERE[case] for case in ("constant", "first", "scalar", "batch", "caught")} | {
    "program": r"rank (0 is in all-reduce %y .* of train .*, step 10, "
    r"but rank 1 is in all-reduce %y .* of evaluate, step 2|"
    r"1 is in all-reduce %y .* of evaluate .*, step 2, but rank 0 is in all-reduce %y .* of train, step 10)",
    "left-out": r"rank (0 is in all-reduce %y .* of train|1 is in all-reduce %y .* of evaluate) .*, step 10, but rank",
    "dtype": r"rank 0 is in a step and .*; rank 1 is outside of a step, in the compilation of train64",
}
CASES = [("1", case, said) for case, said in HERE.items()] + [("0", case, said) for case, said in THERE.items()]
#: The others are for `make test-full`.
SHORT = {("1", "scalar"), ("1", "alone"), ("1", "program"), ("0", "program"), ("0", "dtype")}


@pytest.mark.parametrize(
    ("shared_memory", "case", "said"),
    [
        pytest.param(*found, id=f"{found[1]}-{found[0]}", marks=() if found[:2] in SHORT else pytest.mark.full)
        for found in CASES
    ],
)
def test_a_rank_that_differs(shared_memory: str, case: str, said: str, repository: Path) -> None:
    line = [sys.executable, "-m", "shardc", "mpiexec", "-n", "2"]
    line += [sys.executable, "-m", "tests.launcher.differing_worker", case]
    environ = {**os.environ, "SHARDC_TIMEOUT": "60", "SHARDC_SHARED_MEMORY": shared_memory}
    done = subprocess.run(line, cwd=repository, env=environ, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode != 0 and len(re.findall(r"\] error: ", done.stderr)) == 1, done.stderr
    assert re.search(said, done.stderr), done.stderr
    assert case == "alone" or "nobody noticed" not in done.stderr
