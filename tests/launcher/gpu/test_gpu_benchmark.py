"""``python benchmarks/gpu`` says when there is no GPU, and runs through under emulation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax")


def run(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, str(repository / "benchmarks" / "gpu"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)


def rows(text: str) -> dict[str, list[str]]:
    """The table's cells by figure."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return {line[0]: line[1:] for line in lines[2:]}


def test_without_a_gpu_it_says_so(repository: Path) -> None:
    from shardc.launcher.gpu.devices import find_gpus

    if find_gpus().devices:
        pytest.skip("there is a GPU")
    done = run(repository)
    assert done.returncode == 1
    assert "Nothing was measured: EnvironmentProblem: no NVIDIA GPU can be used: " in done.stderr
    assert done.stdout == ""


def test_figures_of_an_emulation_are_not_kept(repository: Path) -> None:
    done = run(repository, "--emulated", "--write")
    assert done.returncode == 2
    assert "only a whole run on a GPU is kept" in done.stderr


def test_what_was_not_measured_is_empty(repository: Path) -> None:
    done = run(repository, "--show")
    assert done.returncode == 0
    if (repository / "docs" / "gpu_results.json").exists():
        return
    assert "nothing was measured" in done.stdout
    assert all(cells[1:] == ["", "not measured"] for cells in rows(done.stdout).values())
    assert len(rows(done.stdout)) > 15


def check(text: str, programs: list[str]) -> dict[str, list[str]]:
    """Programs have figures; whether they are good is no matter."""
    found = rows(text)
    assert "A tiny run on the emulated GPU" in text
    for name in programs:
        assert found[f"{name}: time over XLA's"][1].endswith(" x"), text
        share = found.get(f"{name}: share of a copy's bandwidth")
        assert share is None or share[1].endswith("%"), text
    return found


def test_a_part_of_it_runs_through(repository: Path) -> None:
    done = run(repository, "--emulated", "--rounds", "1", "--only", "row reduction")
    assert done.returncode == 0, done.stderr
    found = check(done.stdout, ["row reduction"])
    assert found["softmax: time over XLA's"][1:] == ["", "not measured"]


@pytest.mark.full
def test_all_of_it_runs_through(repository: Path) -> None:
    done = run(repository, "--emulated", "--rounds", "1")
    assert done.returncode == 0, done.stderr
    programs = ["loop f32", "loop bf16", "row reduction", "softmax", "layer norm", "column reduction", "transpose"]
    found = check(done.stdout, [*programs, "product bf16", "product f32", "transformer step"])
    assert found["demo's step, 4 virtual devices on the GPU: difference from the CPU's result"][2] == "yes"
    assert found["host's time for starting a step"][1].endswith(" us")
