"""One rank of a job whose module, batch or state is not that of the other ranks."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import torch
from torch import nn

import shardc.torch
from shardc import P
from shardc.hlo.errors import InputError


def square(model: Any, x: Any) -> Any:
    return model(x).square().mean()


def main() -> None:
    warnings.simplefilter("ignore")
    case, rank = sys.argv[1], shardc.process_index()
    torch.manual_seed(rank)
    module, x = nn.Linear(4, 4), torch.arange(32.0).reshape(8, 4)
    mesh = {"d": 2}
    if case == "from_torch":
        call = shardc.from_torch(module, (x,)).annotate({"input": P("d")}, mesh=mesh).compile()
    elif case == "compile":
        call = torch.compile(module, backend=shardc.torch.backend(mesh, {"weight": P("d")}))
    else:
        step = shardc.torch.train_step(module, square, torch.optim.SGD(module.parameters(), lr=0.1), (x,))
        call = step.annotate({"x": P("d")}, mesh=mesh).compile()
    for _ in range(2):
        try:
            call.state_dict() if case == "state" else call(x)
        except InputError as e:
            print(case, "refused", "weight" in str(e), "torch.manual_seed" in str(e), flush=True)
    torch.manual_seed(0)
    same = nn.Linear(4, 4)
    if case in ("step", "state"):
        call.load_state_dict(same.state_dict())
    else:
        module.load_state_dict(same.state_dict())
    result = call(x)
    wanted = square(same, x) if case in ("step", "state") else same(x)
    print(case, "error", float((result - wanted).abs().max()), flush=True)


if __name__ == "__main__":
    main()
