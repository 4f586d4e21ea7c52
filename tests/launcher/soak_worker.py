"""``soak_worker.py STEPS``: a training loop of thousands of steps, on virtual devices or in a job of ranks.

A perceptron on 2 x 4 devices, its weights donated from step to step, with a learning rate that is a Python number,
batches from a generator, and an evaluation by a second program in between. Process 0 prints JSON: ``checksum`` of all
losses and of the weights, and by process the bytes that its memory ``grew`` after a fifth of the steps, and its
``rss``.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import shardc
from shardc import Mesh, P, ShapeDtype
from shardc.hlo.config import Config
from shardc.launcher.jobs.job import job_transport

MESH = Mesh({"data": 2, "model": 4})
BATCH, INPUTS, HIDDEN, OUTPUTS = 32, 16, 64, 8
SPECS = {"w1": P(None, "model"), "b1": P("model"), "w2": P("model", None), "b2": P()}


def forward(weights: dict[str, Any], x: Any) -> tuple[Any, Any]:
    hidden = shardc.shard(np.tanh(x @ weights["w1"] + weights["b1"]), P("data", "model"))
    return hidden, hidden @ weights["w2"] + weights["b2"]


def evaluate(weights: dict[str, Any], x: Any, y: Any) -> Any:
    return np.mean((forward(weights, x)[1] - y) ** 2)


def train(weights: dict[str, Any], x: Any, y: Any, rate: Any) -> tuple[dict[str, Any], Any]:
    hidden, out = forward(weights, x)
    error = out - y
    slope = 2 * error / error.size
    back = (slope @ weights["w2"].T) * (1 - hidden**2)
    gradients = {"w1": x.T @ back, "b1": back.sum(axis=0), "w2": hidden.T @ slope, "b2": slope.sum(axis=0)}
    return {name: w - rate * gradients[name] for name, w in weights.items()}, np.mean(error**2)


def resident() -> int:
    """Bytes of memory that this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(steps: int) -> None:
    rng = np.random.default_rng(0)  # the same on every rank
    weights: Any = {
        "w1": rng.normal(0, 0.3, (INPUTS, HIDDEN)).astype("float32"),
        "b1": np.zeros(HIDDEN, "float32"),
        "w2": rng.normal(0, 0.1, (HIDDEN, OUTPUTS)).astype("float32"),
        "b2": np.zeros(OUTPUTS, "float32"),
    }
    x, y = ShapeDtype((BATCH, INPUTS), "float32", P("data")), ShapeDtype((BATCH, OUTPUTS), "float32", P("data"))
    options = {"in_shardings": (SPECS, None, None, None), "out_shardings": (SPECS, P())}
    step = shardc.trace(train, weights, x, y, 0.1, mesh=MESH, donate_argnums=0, **options).compile()
    judge = shardc.trace(evaluate, weights, x, y, mesh=MESH, in_shardings=(SPECS, None, None)).compile()
    target = rng.normal(0, 0.2, (INPUTS, OUTPUTS))
    first, told = shardc.process_index() == 0, hashlib.sha256()
    begin, early = time.perf_counter(), 0
    for number in range(steps):
        inputs = rng.normal(0, 1, (BATCH, INPUTS)).astype("float32")
        wanted = np.sin(inputs @ target).astype("float32")
        weights, loss = step(weights, inputs, wanted, 0.2 / (1 + number / 1000))
        told.update(np.asarray(loss).tobytes())
        if number % 50 == 0:
            told.update(np.asarray(judge(weights, inputs, wanted)).tobytes())
            if first:
                print(f"step {number}: loss {loss:.5f}", file=sys.stderr)
        if number == steps // 5:
            early = resident()
    seconds = time.perf_counter() - begin
    late = resident()
    for name in sorted(SPECS):
        told.update(shardc.gather(weights[name]).tobytes())
    memory = job_transport(Config.from_environment()).exchange_objects((late - early, late, told.hexdigest()))
    assert len({digest for _, _, digest in memory}) == 1, "the ranks hold different values"
    if first:
        grew, rss = [m[0] for m in memory], [m[1] for m in memory]
        out = {"checksum": told.hexdigest(), "loss": float(loss), "grew": grew, "rss": rss, "seconds": seconds}
        print(json.dumps(out))


if __name__ == "__main__":
    main(int(sys.argv[1]))
