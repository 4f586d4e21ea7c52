"""One model of Hugging Face's kinds beside PyTorch: forward and three training steps on a mesh.

``python -m benchmarks.torch_models_worker NAME DATA MODEL [forward|steps]`` prints lines of JSON with distances from
eager PyTorch, each relative to the largest value. Under ``shardc mpiexec`` each rank prints them.
"""

from __future__ import annotations

import copy
import json
import sys
import warnings
from collections.abc import Mapping
from typing import Any

import torch

import shardc
import shardc.torch
from benchmarks.hugging_face_models import case

__all__ = ["forward_distance", "step_distances", "worst"]

STEPS = 3


def worst(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest distance, relative to the largest value."""
    return float((a.detach() - b.detach()).abs().max() / b.detach().abs().max().clamp(min=1e-30))


def _loss(module: Any, inputs: Any) -> Any:
    return module(**inputs).square().mean()


def forward_distance(name: str, mesh: Mapping[str, int] | None) -> float:
    """How far the forward pass is from PyTorch's."""
    model = case(name)
    with torch.no_grad():
        want = model.module(**model.inputs)
    program = shardc.from_torch(model.module, (), model.inputs)
    program = program.annotate(model.specs, mesh=mesh) if mesh else program
    return worst(program.compile()(**model.inputs), want)


def step_distances(name: str, mesh: Mapping[str, int] | None) -> dict[str, float]:
    """Three steps of SGD beside PyTorch's own: how far apart losses are, and parameters afterwards.

    ``parameters`` is relative to the model's largest value, since biases begin as zero, and some have a gradient that
    is nothing but rounding. ``rounding`` is how far PyTorch's own losses in 32 bits are from those in 64.
    """
    model = case(name)
    if name == "Mixtral":  # the backward operator of its grouped products is transformers' own
        model.module.model.set_experts_implementation("batched_mm")
    eager, exact = copy.deepcopy(model.module), copy.deepcopy(model.module).double()
    inputs = dict(model.inputs)
    wide = {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}
    optimizer = torch.optim.SGD(model.module.parameters(), lr=0.01)
    step = shardc.torch.train_step(model.module, _loss, optimizer, (inputs,))
    specs = _renamed(model.specs, step.program.arg_names)
    training = (step.annotate(specs, mesh=mesh) if mesh else step).compile()
    found = {"loss": 0.0, "parameters": 0.0, "rounding": 0.0}
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.01) for m in (eager, exact)]
    for _ in range(STEPS):
        wants = []
        for module, own, given in zip((eager, exact), optimizers, (inputs, wide), strict=True):
            own.zero_grad()
            wants.append(_loss(module, given))
            wants[-1].backward()
            own.step()
        found["loss"] = max(found["loss"], worst(training(inputs), wants[0]))
        found["rounding"] = max(found["rounding"], worst(wants[0].double(), wants[1]))
    state, want = training.state_dict(), eager.state_dict()
    pairs = [(state[n].flatten(), t.flatten()) for n, t in want.items() if t.is_floating_point()]
    found["parameters"] = worst(*(torch.cat(side) for side in zip(*pairs, strict=True)))
    return found


def _renamed(specs: Mapping[str, Any], names: Any) -> dict[str, Any]:
    """Specs of a model's arguments for the step, which takes them as one dictionary."""
    return {n if n in names else f"inputs['{n}']": s for n, s in specs.items()}


def main(name: str, data: str, model: str, *what: str) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    mesh = {"data": int(data), "model": int(model)} if int(data) * int(model) > 1 else None
    if "steps" not in what:
        print(json.dumps({"forward": forward_distance(name, mesh)}), flush=True)
    if "forward" not in what:
        print(json.dumps(step_distances(name, mesh)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
