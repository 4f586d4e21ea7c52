"""Updates of torch.optim's optimizers, as functions of JAX: SGD, Adam and AdamW.

An update takes the hyperparameters as values, so that a schedule changes them without another program. Scalars are
computed in 64 bits, as PyTorch computes them in Python, and rounded where they meet a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shardc.hlo.errors import UnsupportedError

__all__ = ["ParameterGroup", "groups_of"]

Slots = dict[str, Any]
Hyper = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ParameterGroup:
    """One of an optimizer's ``param_groups``.

    ``hyper`` are its hyperparameters that are values, by name, ``flags`` those that decide what is computed. ``slots``
    are the tensors that the optimizer keeps for each parameter. ``parameters`` are the group's own.
    """

    number: int
    kind: str
    hyper: tuple[str, ...]
    flags: Mapping[str, bool]
    slots: tuple[str, ...]
    parameters: tuple[Any, ...]

    def values(self, optimizer: Any) -> dict[str, float]:
        """What the hyperparameters are now."""
        given = optimizer.param_groups[self.number]
        betas = given.get("betas", (0.0, 0.0))
        found = {**given, "beta1": betas[0], "beta2": betas[1]}
        return {name: float(found[name]) for name in self.hyper}

    def update(self, parameter: Any, gradient: Any, slots: Slots, hyper: Hyper, step: Any) -> tuple[Any, Slots]:
        """The parameter and its slots after step number ``step``, which counts from 1."""
        if self.flags["maximize"]:
            gradient = -gradient
        rule: Callable[..., tuple[Any, Slots]] = _sgd if self.kind == "SGD" else _adam
        return rule(self, parameter, gradient, slots, hyper, step)


def groups_of(optimizer: Any) -> tuple[ParameterGroup, ...]:
    """The groups of an optimizer of torch.optim; UnsupportedError for other optimizers and options."""
    kind = type(optimizer).__name__
    if kind not in ("SGD", "Adam", "AdamW") or not type(optimizer).__module__.startswith("torch.optim"):
        raise UnsupportedError(
            f"the optimizer {type(optimizer).__module__}.{kind} is not supported",
            fix="use torch.optim.SGD, Adam or AdamW",
        )
    if optimizer.state:
        raise UnsupportedError(
            "the optimizer has already made steps", fix="make the training step first, then call its load_state_dict"
        )
    return tuple(_group(kind, number, group) for number, group in enumerate(optimizer.param_groups))


def _group(kind: str, number: int, group: Mapping[str, Any]) -> ParameterGroup:
    options = {"decoupled_weight_decay": kind == "AdamW", "nesterov": False, "amsgrad": False, **group}
    flags = {name: bool(options[name]) for name in ("maximize", "nesterov", "amsgrad", "decoupled_weight_decay")}
    flags["decays"] = options["weight_decay"] != 0
    parameters = tuple(group["params"])
    if kind == "SGD":
        flags["moves"] = options["momentum"] != 0
        hyper = ("lr", "momentum", "dampening", "weight_decay")
        return ParameterGroup(number, kind, hyper, flags, ("momentum_buffer",) if flags["moves"] else (), parameters)
    slots = ("exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if flags["amsgrad"] else []))
    return ParameterGroup(number, kind, ("lr", "beta1", "beta2", "eps", "weight_decay"), flags, slots, parameters)


def _times(scalar: Any, value: Any) -> Any:
    """A scalar of 64 bits, rounded to the type of the tensor that it multiplies."""
    import jax.numpy as jnp

    return jnp.asarray(scalar).astype(value.dtype) * value


def _sgd(group: ParameterGroup, x: Any, gradient: Any, slots: Slots, h: Hyper, step: Any) -> tuple[Any, Slots]:
    import jax.numpy as jnp

    if group.flags["decays"]:
        gradient = gradient + _times(h["weight_decay"], x)
    if group.flags["moves"]:
        kept = _times(h["momentum"], slots["momentum_buffer"]) + _times(1 - h["dampening"], gradient)
        kept = jnp.where(step == 1, gradient, kept)
        slots = {"momentum_buffer": kept}
        gradient = gradient + _times(h["momentum"], kept) if group.flags["nesterov"] else kept
    return x - _times(h["lr"], gradient), slots


def _adam(group: ParameterGroup, x: Any, gradient: Any, slots: Slots, h: Hyper, step: Any) -> tuple[Any, Slots]:
    import jax.numpy as jnp

    if group.flags["decays"] and group.flags["decoupled_weight_decay"]:
        x = _times(1 - h["lr"] * h["weight_decay"], x)
    elif group.flags["decays"]:
        gradient = gradient + _times(h["weight_decay"], x)
    mean = slots["exp_avg"] + _times(1 - h["beta1"], gradient - slots["exp_avg"])
    square = _times(h["beta2"], slots["exp_avg_sq"]) + _times(1 - h["beta2"], gradient * gradient)
    made = {"exp_avg": mean, "exp_avg_sq": square}
    largest = square
    if group.flags["amsgrad"]:
        largest = made["max_exp_avg_sq"] = jnp.maximum(slots["max_exp_avg_sq"], square)
    size = h["lr"] / (1 - h["beta1"] ** step)
    root = jnp.sqrt(1 - h["beta2"] ** step)
    below = jnp.sqrt(largest) / root.astype(x.dtype) + h["eps"].astype(x.dtype)
    return x - _times(size, mean / below), made
