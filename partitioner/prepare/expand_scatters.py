"""A scatter of one window at a known place is arithmetic on the padded update: ``x.at[1:-1].add(y)``.

As a scatter, the array and its windows are cut into chunks that do not match, and shards have to be widened until
every window lies within one. As ``x + pad(y)`` only what crosses a border moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shardc.hlo.evaluate import evaluate_computation
from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_module, topological
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import make
from shardc.hlo.ir.reducers import reducer_kind
from shardc.hlo.ir.sharding import DimSharding, Sharding
from shardc.hlo.ir.types import DType
from shardc.partitioner.emit.emitter import COMBINERS, identity_of

__all__ = ["ExpandScatters"]

#: Combiners with a value that changes nothing.
_OPCODES = frozenset(("add", "multiply", "maximum", "minimum", "and", "or"))

#: What start indices are made of.
_MADE = frozenset(("constant", "broadcast", "reshape", "convert", "concatenate", "slice", "iota"))
_MOST = 64


@dataclass(frozen=True, slots=True)
class ExpandScatters:
    """Scatters without a batch of indices, whose start is constant and whose window cuts a split dimension."""

    name: str = "expand-scatters"
    why: str = "a window at a known place needs no search for the shards that it touches"

    def run(self, module: Module) -> Module:
        return rebuild_module(module, _expand, {"scatter"})


def _expand(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
    if len(operands) != 3 or not isinstance(old.sharding, Sharding):
        return None
    kind = reducer_kind(old.attrs["to_apply"])
    combiner = COMBINERS.get(kind, kind)
    place = _place(old, operands)
    if combiner not in _OPCODES or place is None or not _cuts_split(old, operands, place):
        return None
    window = _window(old, operands[2], old.sharding)
    neutral = _scalar(old, _neutral(combiner, old.shape.dtype))
    pad = make("pad", old.shape, (window, neutral), old, padding=tuple((low, high, 0) for low, high in place))
    pad = pad.replace(sharding=old.sharding)
    return make(combiner, old.shape, (operands[0], pad), old).replace(sharding=old.sharding)


def _place(old: Instruction, operands: Sequence[Instruction]) -> tuple[tuple[int, int], ...] | None:
    """Elements before and after the window along each dimension; None where that is not known, or beyond the array."""
    a = old.attrs
    updates = operands[2].shape
    if len(a["update_window_dims"]) != updates.rank or a.get("input_batching_dims"):
        return None
    starts = _known(operands[1])
    if starts is None or len(starts) != len(a["scatter_dims_to_operand_dims"]):
        return None
    first = dict(zip(a["scatter_dims_to_operand_dims"], starts, strict=True))
    sizes = iter(updates.dims)
    edges = []
    for d, n in enumerate(old.shape.dims):
        size = 1 if d in a["inserted_window_dims"] else next(sizes)
        low = first.get(d, 0)
        if low < 0 or low + size > n:
            return None
        edges.append((low, n - low - size))
    return tuple(edges)


def _known(x: Instruction) -> tuple[int, ...] | None:
    """The elements of a few constant integers."""
    sources = topological([x])
    if x.shape.size > _MOST or any(i.opcode not in _MADE or i.shape.size > _MOST for i in sources):
        return None
    return tuple(np.asarray(evaluate_computation(Computation("starts", sources, x), [])).reshape(-1).tolist())


def _cuts_split(old: Instruction, operands: Sequence[Instruction], place: Sequence[tuple[int, int]]) -> bool:
    """Is a dimension that the window does not span split, in the array before or after?"""
    given = [x.sharding for x in (old, operands[0]) if isinstance(x.sharding, Sharding)]
    return any(any(edges) and s.dims[d].axes for s in given for d, edges in enumerate(place))


def _window(old: Instruction, updates: Instruction, sharding: Sharding) -> Instruction:
    """The updates with the array's dimensions."""
    inserted = old.attrs["inserted_window_dims"]
    if not inserted:
        return updates
    given = updates.sharding.dims if isinstance(updates.sharding, Sharding) else (DimSharding(()),) * updates.shape.rank
    parts = iter(zip(updates.shape.dims, given, strict=True))
    dims, split = zip(
        *((1, DimSharding(())) if d in inserted else next(parts) for d in range(old.shape.rank)), strict=True
    )
    reshaped = make("reshape", updates.shape.with_dims(dims), (updates,), old)
    return reshaped.replace(sharding=Sharding(sharding.mesh, split))


def _neutral(combiner: str, dtype: DType) -> Literal:
    """Zero is negative where it is added: a negative zero stays one."""
    value = identity_of(combiner, dtype)
    return Literal(-value if combiner == "add" and (dtype.is_float or dtype.is_complex) else value)


def _scalar(old: Instruction, literal: Literal) -> Instruction:
    assert isinstance(old.sharding, Sharding)
    made = make("constant", old.operands[0].shape.with_dims(()), (), old, literal=literal)
    return made.replace(sharding=Sharding.replicate(old.sharding.mesh, 0))
