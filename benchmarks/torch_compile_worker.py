"""Calls of ``torch.compile(model, backend="shardc")`` beside the same program called directly, and beside PyTorch.

``python -m benchmarks.torch_compile_worker 1|8 [ROUNDS]`` prints a line of JSON for each way. Everything runs on one
thread, in turn. Times are milliseconds of the processor; ``host`` is what our functions take beside the native steps.
"""

from __future__ import annotations

import copy
import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

os.environ["SHARDC_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import torch
from torch import nn
from torch.nn import functional

import shardc
import shardc.torch
from shardc import P
from shardc.launcher.driver.driver import Driver
from shardc.torch import compile_backend

WIDTH, HEADS, LAYERS, VOCABULARY, BATCH, LENGTH, ROUNDS = 256, 8, 2, 2048, 8, 32, 15
SPECS = {f"*.{name}_proj.weight": P("model", None) for name in ("q", "k", "v", "up")}
SPECS |= {"*.o_proj.weight": P(None, "model"), "*.down_proj.weight": P(None, "model"), "ids": P("data")}
MESHES: dict[str, Any] = {"1": None, "8": {"data": 2, "model": 4}}
Ways = dict[str, Callable[[], Any]]


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up_proj, self.down_proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        q, k, v = (p(y).unflatten(-1, (HEADS, -1)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o_proj(mixed.transpose(1, 2).flatten(2))
        return x + self.down_proj(functional.gelu(self.up_proj(self.norm2(x)), approximate="tanh"))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def loss(model: Any, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(model(ids).flatten(0, 1), targets.flatten())


def _eager(model: Any, optimizer: Any, batch: Any) -> None:
    value = loss(model, *batch)
    optimizer.zero_grad()
    value.backward()
    optimizer.step()


def _forward(mesh: Any, ids: torch.Tensor) -> Ways:
    model = Transformer()
    program = shardc.from_torch(model, (ids,))
    direct = (program.annotate(SPECS, mesh=mesh) if mesh else program).compile()
    compiled = torch.compile(model, backend=shardc.torch.backend(mesh, SPECS if mesh else None))
    return {"eager": lambda: model(ids), "direct": lambda: direct(ids), "compile": lambda: compiled(ids)}


def _steps(make: Any, mesh: Any, batch: Any) -> Ways:
    model = Transformer()
    other, ours = copy.deepcopy(model), copy.deepcopy(model)
    step = shardc.torch.train_step(ours, loss, make(ours.parameters()), batch)
    training = (step.annotate({**SPECS, "targets": P("data")}, mesh=mesh) if mesh else step).compile()
    compiled = torch.compile(model, backend=shardc.torch.backend(mesh, SPECS if mesh else None))
    optimizer, others = make(model.parameters()), make(other.parameters())
    return {
        "eager": lambda: _eager(other, others, batch),
        "direct": lambda: training(*batch),
        "compile": lambda: _eager(compiled, optimizer, batch),
    }


@contextmanager
def _clocks(seconds: dict[str, float]) -> Iterator[None]:
    """Add up what our calls take, and what the native steps in them take, each on its thread."""

    def timed(name: str, function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            begin = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                seconds[name] += time.thread_time() - begin

        return call

    with (
        mock.patch.object(Driver, "_step_once", timed("native", Driver._step_once)),
        mock.patch.object(compile_backend._Runner, "__call__", timed("ours", compile_backend._Runner.__call__)),
    ):
        yield


def measure(ways: Ways, rounds: int) -> dict[str, float]:
    """Milliseconds of the processor of each way, of the native steps in ours, and of what else our functions do."""
    found: dict[str, list[float]] = {}
    seconds = {"native": 0.0, "ours": 0.0}
    with _clocks(seconds):
        for k in range(rounds + 3):
            for name, call in ways.items():
                seconds.update(native=0.0, ours=0.0)
                begin = time.process_time()
                call()
                taken = time.process_time() - begin
                if k < 3:  # compilations
                    continue
                found.setdefault(name, []).append(taken)
                if name == "compile":
                    found.setdefault("native", []).append(seconds["native"])
                    found.setdefault("host", []).append(seconds["ours"] - seconds["native"])
    return {name: 1000 * statistics.median(values) for name, values in found.items()}


def main(devices: str, rounds: str = str(ROUNDS)) -> None:
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    mesh = MESHES[devices]
    ids, targets = torch.randint(VOCABULARY, (2, BATCH, LENGTH))
    with torch.no_grad():
        print(json.dumps({"what": "forward", **measure(_forward(mesh, ids), int(rounds))}), flush=True)
    for make in (torch.optim.SGD, torch.optim.AdamW):
        ways = _steps(make, mesh, (ids, targets))
        print(json.dumps({"what": f"step of {make.__name__}", **measure(ways, int(rounds))}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
