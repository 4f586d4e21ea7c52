"""Ranks whose modules have other values: refused at the first call, and right once they are the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("case", ["step", "state", "from_torch", "compile"])
def test_modules_are_compared(case: str) -> None:
    worker = Path(__file__).with_name("differing_modules_worker.py")
    command = [sys.executable, "-m", "shardc", "mpiexec", "-n", "2", sys.executable, str(worker), case]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count(f"{case} refused True True") == 4, done.stdout
    errors = [float(line.split()[-1]) for line in done.stdout.splitlines() if " error " in line]
    assert len(errors) == 2 and max(errors) < 1e-4, done.stdout
