"""Constant factors are multiplied in once, where there is least to multiply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_computation, rebuild_computations, users_of
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import broadcast_scalar, constant, make, scalar_value
from shardc.partitioner.optimise.keep_root import with_root_sharding
from shardc.partitioner.optimise.move_converts import VIEWS
from shardc.partitioner.optimise.reduction import again, reducer

__all__ = ["MoveScales"]

_SCALES = ("multiply", "divide")
#: Types whose range leaves room for a product of factors, and for a sum before it is scaled.
_TYPES = ("f32", "f64", "bf16")
_NOTE = "scaled after it is reduced"


@dataclass(frozen=True, slots=True)
class MoveScales:
    """``a * (b * x)`` becomes ``(a * b) * x``, and a reduce-scatter of ``a * x`` is scaled behind it.

    ``a`` and ``b`` are constants; a division by one is a factor too. Only where nobody else reads what is in between.
    The product is rounded once instead of twice.
    """

    name: str = "move-scales"
    why: str = "one multiplication of the smaller array instead of several of the larger"

    def run(self, module: Module) -> Module:
        after = rebuild_computations(module, lambda c, called: _merge(_behind(c, called)))
        return with_root_sharding(after, module.entry.root.sharding)


def _behind(computation: Computation, called: Mapping[Computation, Computation]) -> Computation:
    """Factors of what is reduced and scattered go behind the reduction."""
    if not any(i.opcode == "reduce-scatter" for i in computation):
        return rebuild_computation(computation, None, called)
    alone = _read_once(computation)

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if old.opcode != "reduce-scatter" or reducer(old) != "add":
            return None
        factor, x = _without_scale(operands[0], old.operands[0], alone)
        if factor is None or x is None:
            return None
        return _scale(again(old, x, _NOTE), factor, old)

    return rebuild_computation(computation, change, called)


def _merge(computation: Computation) -> Computation:
    """A factor of something scaled is one factor with it."""
    if sum(i.opcode in _SCALES for i in computation) < 2:
        return computation
    alone = _read_once(computation)

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        outer, x = _factor(old.replace(operands=operands))
        if outer is None or x is None:
            return None
        was = next(o for o, new in zip(old.operands, operands, strict=True) if new is x)
        inner, deep = _without_scale(x, was, alone)
        if inner is None or deep is None or not _sound(outer * inner, old):
            return None
        return _scale(deep, outer * inner, old)

    return rebuild_computation(computation, change, {})


def _read_once(computation: Computation) -> frozenset[Instruction]:
    users = users_of(computation)
    return frozenset(i for i in computation if len(users[i]) == 1 and i is not computation.root)


def _without_scale(
    x: Instruction, was: Instruction, alone: frozenset[Instruction]
) -> tuple[float | None, Instruction | None]:
    """The constant factor in ``x`` and ``x`` without it; ``was`` is ``x`` in the computation before the rewriting."""
    views: list[Instruction] = []
    while x.opcode in VIEWS and was in alone and was.opcode == x.opcode:
        views.append(x)
        x, was = x.operands[0], was.operands[0]
    if was not in alone:
        return None, None
    factor, inner = _factor(x)
    if factor is None or inner is None:
        return None, None
    for view in reversed(views):
        inner = view.replace(operands=(inner,))
    return factor, inner


def _factor(i: Instruction) -> tuple[float | None, Instruction | None]:
    """``(a, x)`` when ``i`` is the constant ``a`` times ``x``, for a finite ``a`` other than zero."""
    if i.opcode not in _SCALES or i.shape.dtype.name not in _TYPES or not i.shape.dims:
        return None, None
    left, right = i.operands
    for value, x in ((scalar_value(right), left), (scalar_value(left), right)):
        if value is None or scalar_value(x) is not None:
            continue
        if i.opcode == "divide" and x is right:
            return None, None
        factor = float(value) if i.opcode == "multiply" else (1 / float(value) if value else 0.0)
        return (factor, x) if _sound(factor, i) else (None, None)
    return None, None


def _sound(factor: float, like: Instruction) -> bool:
    """Whether the factor is a normal number of the type."""
    low, high = (1e-30, 1e30) if like.shape.dtype.name != "f64" else (1e-300, 1e300)
    return low < abs(factor) < high


def _scale(x: Instruction, factor: float, like: Instruction) -> Instruction:
    value = np.asarray(factor, like.shape.dtype.numpy)
    number = constant(Literal(value), like)
    return make("multiply", x.shape, (x, broadcast_scalar(number, x.shape.dims, like)), like)
