"""Ten models of Hugging Face's kinds give what PyTorch gives: on one device, on a mesh, and on four ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from benchmarks.hugging_face_models import MODELS  # noqa: E402
from benchmarks.torch_models_worker import forward_distance, step_distances  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
#: What `make test` takes of the models.
SLICE = ("GPT-2", "DiT")
ON_EIGHT = {"data": 2, "model": 4}


def _marked(name: str) -> Any:
    return pytest.param(name, marks=() if name in SLICE else pytest.mark.full)


@pytest.mark.parametrize("name", [_marked(n) for n in MODELS])
def test_forward(name: str, record_property: Any) -> None:
    alone, apart = forward_distance(name, None), forward_distance(name, ON_EIGHT)
    record_property(f"figure: {name}", f"{alone:.1e} on 1 device, {apart:.1e} on 8")
    assert max(alone, apart) < 1e-6


@pytest.mark.full
@pytest.mark.parametrize("mesh", [None, ON_EIGHT], ids=["1", "8"])
@pytest.mark.parametrize("name", list(MODELS))
def test_losses_of_three_steps(name: str, mesh: Any) -> None:
    assert step_distances(name, mesh)["loss"] < 1e-6


@pytest.mark.mpi
@pytest.mark.full
@pytest.mark.parametrize("name", list(MODELS))
def test_on_four_ranks(name: str) -> None:
    worker = [sys.executable, "-m", "benchmarks.torch_models_worker", name, "2", "2"]
    command = [sys.executable, "-m", "shardc", "mpiexec", "-n", "4", *worker]
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=900, check=False)
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0 and len(said) == 8, done.stderr[-2000:]
    assert max(s.get("forward", 0.0) for s in said) < 1e-6 and max(s.get("loss", 0.0) for s in said) < 1e-6
