"""A rank that ends, is busy or calls something else while others wait between steps is named, with its line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.mpi

ENDED = (
    r"error: rank 1 \(pid \d+ on \S+\) did not take part in {what}\n"
    r".*rank 1 .*: it has ended, after 0 collectives\n"
    r".*rank 0 .*: it waits for the other ranks in {what} at \S*missing_worker.py:\d+, for .*\n"
    r".*where: \S*missing_worker.py:\d+\n"
    r".*fix: call the same programs in the same order"
)


@pytest.mark.parametrize(
    ("case", "shared_memory", "timeout", "said"),
    [
        ("mean", "1", "60", ENDED.format(what="the compilation of mean")),
        ("gather", "1", "60", ENDED.format(what="a gather of values")),
        pytest.param("first", "1", "60", ENDED.format(what="the compilation of .*"), marks=pytest.mark.full),
        (
            "sleep",
            "1",
            "1",
            r"rank 1 \(pid .*\) did not take part in the compilation of multiply \(after 1 s\)\n.*rank 1 .*user's code",
        ),
        pytest.param(
            "mean", "0", "1", r"rank 0 waited 1 s in the compilation of .*\n.*where: \S*.py:\d+", marks=pytest.mark.full
        ),
        *(
            pytest.param(
                "gather-and-more",
                shared,
                "60",
                r"rank \d is in (the compilation of multiply|a gather.*) at \S*.py:\d+, "
                r"but rank \d is in (the compilation|a gather) .*\n"
                r".*where: \S*missing_worker.py:\d+",
                marks=() if shared == "1" else pytest.mark.full,
            )
            for shared in ("1", "0")
        ),
    ],
)
def test_a_rank_that_is_missing(case: str, shared_memory: str, timeout: str, said: str, repository: Path) -> None:
    line = [sys.executable, "-m", "shardc", "mpiexec", "-n", "2"]
    line += [sys.executable, "-m", "tests.launcher.missing_worker", case]
    environ = {**os.environ, "SHARDC_TIMEOUT": timeout, "SHARDC_SHARED_MEMORY": shared_memory}
    done = subprocess.run(line, cwd=repository, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode != 0 and len(re.findall(r"\] error: ", done.stderr)) == 1, done.stderr
    assert re.search(said, done.stderr), done.stderr
