"""Training steps for several devices: the same functions and shardings for both sides.

Every program is a function of (state, *rest) that returns (state, loss); the state is donated on both sides.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from cpu_programs import convnet, perceptron
from programs import Case, perceptron_fsdp

from shardc.demo.setup import ModelConfig, example_state, example_tokens, state_specs
from shardc.hlo.ir.mesh import Mesh
from shardc.sharding.notations.partition_spec import P

__all__ = ["DEVICE_CASES"]


def _mlp(title: str, data: int, model: int) -> Case:
    """The MLP of one device, its batch over ``data`` and its hidden dimension over ``model``."""
    program = perceptron()
    weights = {"up": P(None, "model"), "a": P("model"), "down": P("model"), "b": P()}
    batch = P("data")
    mesh = Mesh({"data": data, "model": model})
    name = f"{program.name}, {title}"
    return Case(name, mesh, program.function, program.arguments, (weights, batch, batch), (weights, P()))


def _transformer(title: str, data: int, model: int, width: int = 256) -> Case:
    """The demo's step with Adam: batch over ``data``, heads, hidden dimension and vocabulary over ``model``."""
    from shardc.demo.model import training_step

    config = ModelConfig(layers=2, d_model=width, heads=8, d_ff=4 * width, vocab=2048, sequence=128, batch=8)
    specs = state_specs(config)
    arguments = (example_state(0, config), example_tokens(0, config))
    name = f"transformer 2x{width}, sequence 128, Adam, {title}"
    mesh = Mesh({"data": data, "model": model})
    return Case(name, mesh, training_step(config), arguments, (specs, P("data")), (specs, P()))


def _convnet(data: int) -> Case:
    program = convnet()
    batch = P("data")
    name = f"{program.name}, data parallel"
    return Case(
        name, Mesh({"data": data}), program.function, program.arguments, (P(), batch, batch), (P(), P())
    )  # fmt: skip


#: By name: the case for so many devices.
_CASES: dict[str, Callable[[int], Case]] = {
    "mlp-data": lambda n: _mlp("data parallel", n, 1),
    "mlp-tensor": lambda n: _mlp("tensor parallel", 1, n),
    "mlp-mixed": lambda n: _mlp("data x tensor parallel", 2, n // 2),
    "transformer-data": lambda n: _transformer("data parallel", n, 1),
    "transformer-tensor": lambda n: _transformer("tensor parallel", 1, n),
    "transformer-small": lambda n: _transformer("data x tensor parallel", 2, n // 2, 64),
    "convnet-data": _convnet,
    "fsdp": lambda n: perceptron_fsdp(devices=n),
}

#: By ``NAME-DEVICES``.
DEVICE_CASES: dict[str, Callable[[], Case]] = {
    f"{name}-{n}": partial(make, n) for name, make in _CASES.items() for n in (4, 8)
}
