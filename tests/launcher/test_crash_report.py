"""Who starts a job learns which rank ended first without a word."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from shardc.launcher.jobs.crash_report import CrashReport

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sockets without files")

RANK = """
import os, sys
from shardc.launcher.jobs.crash_report import CrashReporter
from shardc.launcher.jobs.rank_status import this_process
reporter = CrashReporter.to_launcher(this_process(int(sys.argv[1])), -1)
print("here", flush=True)
sys.stdin.readline()
if sys.argv[2]:
    getattr(reporter, sys.argv[2])()
os._exit(0)
"""


def job(*words: str) -> tuple[CrashReport, list[int]]:
    """Ranks that say their word and end, one after another; the crash report, and their processes."""
    with CrashReport() as call:
        ranks = [
            subprocess.Popen(
                [sys.executable, "-c", RANK, str(rank), word],
                env=os.environ | call.environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank, word in enumerate(words)
        ]
        for rank in ranks:
            assert rank.stdout is not None
            assert rank.stdout.readline() == "here\n"
        for rank in reversed(ranks):
            rank.communicate("\n")
    return call, [rank.pid for rank in ranks]


def test_the_first_that_says_nothing() -> None:
    call, pids = job("", "", "close")
    found = call.first(9)
    assert found is not None
    rank, error = found
    assert rank == 1
    assert f"rank 1 (pid {pids[1]} on " in str(error)
    assert "failed (seen by the launcher)" in str(error)
    assert call.first(0) is None  # nobody was seen in a step


def test_a_rank_that_has_told_the_user() -> None:
    call, _ = job("", "reported")
    assert call.first(1) is None


def test_all_in_good_order() -> None:
    call, _ = job("close", "close")
    assert call.first(1) is None
