"""Sizes, shardings and start values of the demo's training step. Needs no JAX."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.hlo.ir.mesh import Mesh
from shardc.sharding.notations.partition_spec import P

__all__ = [
    "MESH",
    "ModelConfig",
    "example_inputs",
    "example_state",
    "example_tokens",
    "named_leaves",
    "result_names",
    "state_specs",
]

#: Two halves of the batch by two halves of every wide weight.
MESH = Mesh({"data": 2, "model": 2})

Tree = Any


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder-only language model, trained by Adam."""

    layers: int = 2
    d_model: int = 128
    heads: int = 4
    d_ff: int = 512
    vocab: int = 1024
    sequence: int = 64
    batch: int = 8
    learning_rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    @property
    def head_size(self) -> int:
        return self.d_model // self.heads


def _parameters(config: ModelConfig) -> Tree:
    """(shape, scale of the start values or None for ones, sharding) per parameter: Megatron's layout. Heads, the
    hidden dimension of the MLP and the vocabulary are split over ``model``; norms are everywhere."""
    d, h, k, f = config.d_model, config.heads, config.head_size, config.d_ff
    layer = {
        "attention_norm": ((d,), None, P()),
        "wq": ((d, h, k), d**-0.5, P(None, "model")),
        "wk": ((d, h, k), d**-0.5, P(None, "model")),
        "wv": ((d, h, k), d**-0.5, P(None, "model")),
        "wo": ((h, k, d), d**-0.5, P("model")),
        "mlp_norm": ((d,), None, P()),
        "w1": ((d, f), d**-0.5, P(None, "model")),
        "b1": ((f,), 0.0, P("model")),
        "w2": ((f, d), f**-0.5, P("model")),
        "b2": ((d,), 0.0, P()),
    }
    return {
        "embed": ((config.vocab, d), 0.02, P("model")),
        "position": ((config.sequence, d), 0.02, P()),
        "layers": [layer] * config.layers,
        "final_norm": ((d,), None, P()),
    }


def _map(tree: Tree, fn: Any) -> Tree:
    if isinstance(tree, dict):
        return {k: _map(v, fn) for k, v in tree.items()}
    return [_map(v, fn) for v in tree] if isinstance(tree, list) else fn(*tree)


def state_specs(config: ModelConfig) -> Tree:
    """The sharding of every array of the training state, in the state's structure."""
    specs = _map(_parameters(config), lambda shape, scale, spec: spec)
    return {"params": specs, "mean": specs, "variance": specs, "step": P()}


def example_state(seed: int = 0, config: ModelConfig | None = None) -> Tree:
    """A training state as NumPy float32 arrays: parameters, Adam's moments, step number (int32).

    The moments are those of a step in the middle of training: at the very first step Adam moves every weight by its
    gradient's sign, which turns rounding errors of vanishing gradients into visible ones.
    """
    config = config or ModelConfig()
    rng = np.random.default_rng(seed)

    def start(shape: tuple[int, ...], scale: float | None, _: P) -> NDArray[Any]:
        if scale is None:
            return np.ones(shape, np.float32)
        return (scale * rng.standard_normal(shape)).astype(np.float32)

    def mean(shape: tuple[int, ...], *_: Any) -> NDArray[Any]:
        return (1e-3 * rng.standard_normal(shape)).astype(np.float32)

    def variance(shape: tuple[int, ...], *_: Any) -> NDArray[Any]:
        return (1e-6 * rng.uniform(0.5, 1.5, shape)).astype(np.float32)

    table = _parameters(config)
    return {
        "params": _map(table, start),
        "mean": _map(table, mean),
        "variance": _map(table, variance),
        "step": np.array(100, np.int32),
    }


def example_tokens(seed: int = 0, config: ModelConfig | None = None) -> NDArray[Any]:
    """Token numbers, int32[batch, sequence + 1]: inputs, and targets one place later."""
    config = config or ModelConfig()
    rng = np.random.default_rng(seed + 1)
    return rng.integers(0, config.vocab, (config.batch, config.sequence + 1), dtype=np.int32)


def named_leaves(tree: Tree, name: str) -> Iterator[tuple[str, Any]]:
    """Leaves with the names that JAX gives them: ``state['params']['layers'][0]['wq']``."""
    if isinstance(tree, Mapping):
        for key in sorted(tree):
            yield from named_leaves(tree[key], f"{name}[{key!r}]")
    elif isinstance(tree, (list, tuple)):
        for index, item in enumerate(tree):
            yield from named_leaves(item, f"{name}[{index}]")
    else:
        yield name, tree


def result_names(config: ModelConfig | None = None) -> tuple[str, ...]:
    """The names of the step's results in order: the new state, then the loss."""
    state = named_leaves(state_specs(config or ModelConfig()), "result[0]")
    return (*(name for name, _ in state), "result[1]")


def example_inputs(arg_names: Sequence[str], seed: int = 0) -> list[NDArray[Any]]:
    """Values for the step's parameters, found by name: ``state[...]`` and ``tokens``."""
    values = dict(named_leaves(example_state(seed), "state"))
    values["tokens"] = example_tokens(seed)
    return [values[name] for name in arg_names]
