"""Training loops of thousands of steps: the same bits everywhere and every time, and no memory that grows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

WORKER = ("-m", "tests.launcher.soak_worker")
#: Bytes that a process may hold more at the end than after a fifth of its steps; 2,000 lost arrays would be more.
GROWTH = 4 << 20


def run(ranks: int, steps: int, cwd: Path) -> dict[str, Any]:
    """What process 0 says after ``steps``; ``ranks`` 0 are virtual devices."""
    job = (sys.executable, "-m", "shardc", "mpiexec", "-n", str(ranks)) if ranks else ()
    line = [*job, sys.executable, *WORKER, str(steps)]
    environ = {**os.environ, "SHARDC_TIMEOUT": "300"}
    done = subprocess.run(line, cwd=cwd, env=environ, capture_output=True, text=True, timeout=3600, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    assert len(told["grew"]) == max(1, ranks)
    print(ranks, "ranks:", told)
    return told


@pytest.mark.mpi
def test_ranks_repeat_virtual_devices(repository: Path) -> None:
    """Four ranks, also on fewer cores."""
    virtual, ranks = run(0, 120, repository), run(4, 120, repository)
    assert ranks["checksum"] == virtual["checksum"]
    assert max(ranks["grew"]) < GROWTH


@pytest.mark.mpi
@pytest.mark.full
def test_ten_thousand_steps(repository: Path) -> None:
    """On 4 ranks and twice on 8: far more than cores in most places."""
    virtual = run(0, 10_000, repository)
    for ranks in (4, 8, 8):
        told = run(ranks, 10_000, repository)
        assert told["checksum"] == virtual["checksum"], ranks
        assert max(told["grew"]) < GROWTH, ranks
