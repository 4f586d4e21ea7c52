"""Jobs of MPI ranks with an emulated GPU each: staging through the host gives the bits of virtual devices."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.mpi

WORKER = ("-m", "tests.launcher.gpu.gpu_job_worker")
REPOSITORY = Path(__file__).parents[3]


def start(ranks: int, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    launcher = [sys.executable, "-m", "shardc", "mpiexec", "-n", str(ranks)] if ranks else []
    line = [*launcher, sys.executable, *WORKER, *words]
    variables = {**os.environ, **environment}
    return subprocess.run(line, cwd=REPOSITORY, env=variables, capture_output=True, text=True, timeout=300, check=False)


def computed(path: Path, ranks: int, devices: int) -> list[np.ndarray]:
    done = start(ranks, str(devices), str(path))
    assert done.returncode == 0, done.stderr
    with np.load(path) as found:
        return [found[f"arr_{n}"] for n in range(len(found.files))]


@cache
def _virtual(folder: Path, devices: int) -> list[np.ndarray]:
    return computed(folder / f"virtual{devices}.npz", 0, devices)


@pytest.mark.parametrize(("ranks", "devices"), [(2, 4), pytest.param(4, 4, marks=pytest.mark.full)])
def test_ranks_compute_what_virtual_devices_do(
    ranks: int, devices: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp()
    *found, counts = computed(folder / f"ranks{ranks}.npz", ranks, devices)
    *alone, _ = _virtual(folder, devices)
    assert counts[0] > 3
    assert counts[1] >= 4 * counts[0]
    half = len(found) // 2
    for number, (gpu, virtual, cpu) in enumerate(zip(found[:half], alone[:half], found[half:], strict=True)):
        assert gpu.tobytes() == virtual.tobytes(), number
        np.testing.assert_allclose(gpu, cpu, rtol=2e-5, atol=1e-5, err_msg=str(number))


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        pytest.param("raise", "ValueError: boom", marks=pytest.mark.full),
        pytest.param("kill", "rank 1", marks=pytest.mark.full),
        ("stop", "rank 1"),
    ],
)
def test_a_failing_rank_ends_the_job(trouble: str, told: str, tmp_path: Path) -> None:
    done = start(2, "4", str(tmp_path / "out.npz"), trouble, SHARDC_TIMEOUT="3")
    assert done.returncode == 1
    assert told in done.stderr
