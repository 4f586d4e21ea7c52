"""PyTorch's training steps, a backend of its compiler, plans and layouts: ``import shardc.torch``, extra ``torch``.

Examples continue these lines:

>>> import torch
>>> import shardc.torch
>>> from shardc import P
>>> model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
>>> def loss(model, x, y):
...     return torch.nn.functional.mse_loss(model(x), y)
>>> x, y = torch.ones(4, 16), torch.ones(4, 8)
"""

from __future__ import annotations

from shardc.torch.compile_backend import backend
from shardc.torch.plans import fully_shard, parallelize_module, spec_of_placements
from shardc.torch.train_step import TrainStep, train_step
from shardc.torch.training import Training

__all__ = [
    "TrainStep", "Training", "backend", "fully_shard", "parallelize_module", "spec_of_placements", "train_step",
]  # fmt: skip
