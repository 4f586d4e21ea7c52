"""Every example runs, and stays short."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = (
    "jax_jit.py",
    "jax_fsdp_scan.py",
    "mesh_512.py",
    "checkpoint_resume.py",
    "find_the_allgather.py",
    "dropless_experts.py",
)


def run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=600, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def shardc(*arguments: str, cwd: Path | None = None) -> str:
    return run(sys.executable, "-m", "shardc", *arguments, cwd=cwd)


@pytest.mark.parametrize("script", SCRIPTS)
def test_script(script: str, repository: Path) -> None:
    run(sys.executable, str(repository / "examples" / script))


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.full)])
def test_training_loop_on_ranks(ranks: int, repository: Path) -> None:
    shardc("mpiexec", "-n", str(ranks), sys.executable, str(repository / "examples" / "mpi_train.py"))


@pytest.mark.mpi
def test_dropless_experts_on_ranks(repository: Path) -> None:
    out = shardc("mpiexec", "-n", "4", sys.executable, str(repository / "examples" / "dropless_experts.py"))
    assert out.count("largest difference") == 4


@pytest.mark.mpi
def test_annotated_hlo_gives_the_same_bits_on_ranks_and_virtual_devices(repository: Path) -> None:
    file = str(repository / "examples" / "hlo_annotated" / "mlp.hlo")
    here = json.loads(shardc("run", file, "--json"))
    ranks = json.loads(shardc("run", file, "--ranks", "4", "--json"))
    assert here["results"] == ranks["results"]


def test_annotated_hlo_verifies(repository: Path) -> None:
    shardc("verify", str(repository / "examples" / "hlo_annotated" / "mlp.hlo"))


def test_annotated_hlo_with_another_mesh(repository: Path) -> None:
    file = str(repository / "examples" / "hlo_annotated" / "mlp.hlo")
    annotations = ("x=data,None", "y=data,None", "w1=None,None", "w2=None,None")
    flags = [flag for a in annotations for flag in ("--annotate", a)]
    shardc("run", file, "--mesh", "data=4", *flags)


def test_examples_are_short(repository: Path) -> None:
    for path in (repository / "examples").rglob("*"):
        if path.suffix in (".py", ".hlo", ".job", ".sbatch", ".md") and path.parent.name != "by_hand":
            assert len(path.read_text(encoding="utf-8").splitlines()) <= 60, path


@pytest.mark.mpi
def test_numpy_training_gives_the_same_losses_on_ranks_and_virtual_devices(repository: Path) -> None:
    script = str(repository / "examples" / "numpy_mlp.py")
    here, ranks = run(sys.executable, script), shardc("mpiexec", "-n", "4", sys.executable, script)
    losses = [line for line in here.splitlines() if line.startswith("step")]
    assert [line for line in ranks.splitlines() if line.startswith("step")] == losses
    values = [float(line.split()[3]) for line in losses]
    assert values[0] > 5 * values[-1]
    assert here.count("all-reduce %") >= 2  # independent ones are combined
