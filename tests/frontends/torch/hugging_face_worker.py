"""One rank of a job: the forward pass of a model over 2 x 2 ranks, and how far it is from PyTorch's."""

from __future__ import annotations

import sys
import warnings

import torch
from hugging_face import case
from models import worst

import shardc


def main(name: str) -> None:
    warnings.simplefilter("ignore")
    model = case(name)
    with torch.no_grad():
        want = model.module(**model.inputs)
    program = shardc.from_torch(model.module, (), model.inputs).annotate(model.specs, mesh={"data": 2, "model": 2})
    print("error", worst(program.compile()(**model.inputs), want), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
