"""Fourier transforms over several dimensions, some of them split, become transforms over one dimension each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from shardc.hlo.ir.ir import Instruction, Module, rebuild_module
from shardc.hlo.ir.sharding import DimSharding, Sharding

__all__ = ["SplitTransforms"]


@dataclass(frozen=True, slots=True)
class SplitTransforms:
    """A transform over one dimension moves that dimension's axes to another one, by an all-to-all.

    Whole dimensions go first, so that the split ones have somewhere to move their axes to. Where operand and result
    have the same layout, an inverse goes the other way: its operand may have the layout in which a transform ends. A
    real transform begins (its inverse ends) with the last dimension, which is the one that changes its size. Where
    layouts are ``free``, still to be chosen, all transforms over several dimensions are written so; `JoinTransforms`
    joins those that stay whole.
    """

    free: bool = False
    name: str = "split-transforms"
    why: str = "a transform over several dimensions would need all of them whole at once"

    def run(self, module: Module) -> Module:
        return rebuild_module(module, partial(_one_by_one, free=self.free), {"fft"})


def _one_by_one(op: Instruction, operands: tuple[Instruction, ...], *, free: bool) -> Instruction | None:
    x, before, after = operands[0], operands[0].sharding, op.sharding
    rank, lengths = op.shape.rank, tuple(op.attrs["fft_length"])
    last = rank - 1
    dims = range(rank - len(lengths), rank)
    if not isinstance(before, Sharding) or not isinstance(after, Sharding) or before.manual or after.manual:
        return None
    split = {d for d in dims if before.dims[d].axes or after.dims[d].axes}
    if len(lengths) == 1 or not (split or free):
        return None
    kind = op.attrs["fft_type"]
    order = sorted(dims, key=lambda d: (bool(before.dims[d].axes), bool(after.dims[d].axes), -d if free else d))
    if kind in ("IFFT", "IRFFT") and before.dims == after.dims:
        order.reverse()
    if kind in ("RFFT", "IRFFT"):
        order.remove(last)
        order.insert(0 if kind == "RFFT" else len(order), last)
    for d in order:
        inverse = "IFFT" if kind in ("IFFT", "IRFFT") else "FFT"
        x = _along(x, d, kind if d == last else inverse, lengths[d - rank], op)
    return x.replace(name=op.name, sharding=after)


def _along(x: Instruction, dim: int, kind: str, length: int, op: Instruction) -> Instruction:
    """A transform of the one dimension ``dim``, which is the last one meanwhile."""
    last = x.shape.rank - 1
    order = list(range(last + 1))
    order[dim], order[last] = last, dim
    x = _transpose(x, order, op)
    count = length // 2 + 1 if kind == "RFFT" else length
    dtype = op.shape.dtype if kind in ("RFFT", "IRFFT") else x.shape.dtype
    shape = replace(x.shape.with_dims((*x.shape.dims[:-1], count)).plain, dtype=dtype)
    attrs = {**op.attrs, "fft_type": kind, "fft_length": (length,)}
    made = op.replace(shape=shape, operands=(x,), attrs=attrs, sharding=x.sharding)
    return _transpose(made, order, op)


def _transpose(x: Instruction, order: Sequence[int], op: Instruction) -> Instruction:
    if list(order) == sorted(order):
        return x
    assert isinstance(x.sharding, Sharding)
    dims: list[DimSharding] = [x.sharding.dims[d] for d in order]
    shape = x.shape.with_dims(tuple(x.shape.dims[d] for d in order)).plain
    return op.replace(
        opcode="transpose",
        shape=shape,
        operands=(x,),
        attrs={"dimensions": tuple(order)},
        sharding=replace(x.sharding, dims=tuple(dims)),
    )
