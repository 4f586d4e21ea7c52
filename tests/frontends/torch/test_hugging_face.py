"""Ten models of Hugging Face's kinds give what PyTorch gives: on one device, on a mesh, and on four ranks."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from hugging_face import MODELS, case  # noqa: E402
from models import worst  # noqa: E402

import shardc  # noqa: E402
import shardc.torch  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
#: What `make test` takes of the models.
SLICE = ("GPT-2", "DiT")


def _marked(name: str) -> Any:
    return pytest.param(name, marks=() if name in SLICE else pytest.mark.full)


@pytest.mark.parametrize("name", [_marked(n) for n in MODELS])
def test_forward(name: str, record_property: Any) -> None:
    model = case(name)
    with torch.no_grad():
        want = model.module(**model.inputs)
    program = shardc.from_torch(model.module, (), model.inputs)
    alone = worst(program.compile()(**model.inputs), want)
    split = program.annotate(model.specs, mesh={"data": 2, "model": 4}).compile()
    apart = worst(split(**model.inputs), want)
    record_property(f"figure: {name}", f"{alone:.1e} on 1 device, {apart:.1e} on 8")
    assert max(alone, apart) < 1e-6


@pytest.mark.full
@pytest.mark.parametrize("name", list(MODELS))
def test_three_steps(name: str) -> None:
    """Losses of three steps of SGD, on one device, beside PyTorch's own steps."""
    model = case(name)
    if name == "Mixtral":  # the backward operator of its grouped products is transformers' own
        model.module.model.set_experts_implementation("batched_mm")
    other = copy.deepcopy(model.module)
    inputs = dict(model.inputs)

    def loss(module: Any, inputs: Any) -> Any:
        return module(**inputs).square().mean()

    ours, theirs = (torch.optim.SGD(m.parameters(), lr=0.01) for m in (model.module, other))
    training = shardc.torch.train_step(model.module, loss, ours, (inputs,)).compile()
    for _ in range(3):
        theirs.zero_grad()
        want = loss(other, inputs)
        want.backward()
        theirs.step()
        assert worst(training(inputs), want.detach()) < 1e-6


@pytest.mark.mpi
@pytest.mark.full
@pytest.mark.parametrize("name", list(MODELS))
def test_forward_on_four_ranks(name: str) -> None:
    worker = Path(__file__).with_name("hugging_face_worker.py")
    command = [sys.executable, "-m", "shardc", "mpiexec", "-n", "4", sys.executable, str(worker), name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    errors = [float(line.split()[-1]) for line in done.stdout.splitlines() if line.startswith("error ")]
    assert done.returncode == 0 and errors, done.stderr[-2000:]
    assert max(errors) < 1e-6
