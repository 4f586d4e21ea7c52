"""One rank of a job: ``torch.compile`` over 2 x 2 ranks, and how far loss and gradients are from PyTorch's."""

from __future__ import annotations

import copy
import warnings

import torch
from models import Transformer, seeded, worst

import shardc.torch
from shardc import P


def main() -> None:
    warnings.simplefilter("ignore")
    model, ids = seeded(Transformer), torch.arange(24).reshape(4, 6) % 32
    other = copy.deepcopy(model)
    specs = {"*.up_proj.weight": P("model", None), "*.down_proj.weight": P(None, "model"), "ids": P("data")}
    compiled = torch.compile(model, backend=shardc.torch.backend({"data": 2, "model": 2}, specs))
    losses = []
    for run in (compiled, other):
        losses.append(torch.nn.functional.cross_entropy(run(ids).flatten(0, 1), ids.flatten()))
        losses[-1].backward()
    pairs = [(model.get_parameter(n).grad, p.grad) for n, p in other.named_parameters()]
    print("error", max(worst(a.detach(), b.detach()) for a, b in [tuple(losses), *pairs]), flush=True)


if __name__ == "__main__":
    main()
