"""Batch normalisation as means, variances and products (Ioffe and Szegedy 2015), in f32 for narrower types."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from shardc.hlo.ir.build import binary_computation
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.operations import Operations
from shardc.hlo.ir.types import Shape, array_shape

__all__ = ["expand_batch_norm"]


def expand_batch_norm(i: Instruction) -> Computation:
    """The short program that ``batch-norm-training``, ``-inference`` or ``-grad`` stands for."""
    return _PROGRAMS[i.opcode](i)


def _statistics(p: Operations, x: Instruction, feature: int) -> tuple[Instruction, Instruction]:
    """Mean and variance of ``x`` over all dimensions but one."""
    dims = tuple(d for d in range(x.shape.rank) if d != feature)
    count = math.prod(x.shape.dims[d] for d in dims)
    kind = x.shape.dtype
    zero = p.b.constant(0.0, kind)
    add = binary_computation("add", kind)
    shape = array_shape(kind, x.shape.dims[feature])
    mean = p.op("divide", p.op("reduce", x, zero, dimensions=dims, to_apply=add), p.full(count, shape))
    centred = p.op("subtract", x, p.spread(mean, x.shape.dims, (feature,)))
    squares = p.op("reduce", p.op("multiply", centred, centred), zero, dimensions=dims, to_apply=add)
    return mean, p.op("divide", squares, p.full(count, shape))


def _normalise(
    p: Operations, i: Instruction, x: Instruction, mean: Instruction, variance: Instruction
) -> tuple[Instruction, Instruction]:
    """(x - mean) / sqrt(variance + epsilon), and the reciprocal root."""
    feature = i.attrs["feature_index"]
    root = p.op("rsqrt", p.op("add", variance, p.full(i.attrs["epsilon"], variance.shape)))
    centred = p.op("subtract", x, p.spread(mean, x.shape.dims, (feature,)))
    return p.op("multiply", centred, p.spread(root, x.shape.dims, (feature,))), root


def _in_f32(p: Operations) -> list[Instruction]:
    return [p.convert(x, "f32") if x.shape.dtype.bits < 32 else x for x in p.parameters]


def _out(p: Operations, shape: Shape, *values: Instruction) -> Computation:
    kinds = [s.dtype for s in shape.leaves()]
    return p.build(*(v if v.shape.dtype is k else p.convert(v, k.name) for v, k in zip(values, kinds, strict=True)))


def _batch_norm_inference(i: Instruction) -> Computation:
    p = Operations(i)
    x, scale, offset, mean, variance = _in_f32(p)
    return _out(p, i.shape, _scale(p, i, _normalise(p, i, x, mean, variance)[0], scale, offset))


def _scale(p: Operations, i: Instruction, y: Instruction, scale: Instruction, offset: Instruction) -> Instruction:
    at = (i.attrs["feature_index"],)
    return p.op("add", p.op("multiply", y, p.spread(scale, y.shape.dims, at)), p.spread(offset, y.shape.dims, at))


def _batch_norm_training(i: Instruction) -> Computation:
    p = Operations(i)
    x, scale, offset = _in_f32(p)
    mean, variance = _statistics(p, x, i.attrs["feature_index"])
    return _out(p, i.shape, _scale(p, i, _normalise(p, i, x, mean, variance)[0], scale, offset), mean, variance)


def _batch_norm_grad(i: Instruction) -> Computation:
    p = Operations(i)
    x, scale, mean, variance, gradient = _in_f32(p)
    feature = i.attrs["feature_index"]
    dims = tuple(d for d in range(x.shape.rank) if d != feature)
    count = math.prod(x.shape.dims[d] for d in dims)
    y, root = _normalise(p, i, x, mean, variance)
    zero, add = p.b.constant(0.0, x.shape.dtype), binary_computation("add", x.shape.dtype)
    scale_gradient = p.op("reduce", p.op("multiply", gradient, y), zero, dimensions=dims, to_apply=add)
    offset_gradient = p.op("reduce", gradient, zero, dimensions=dims, to_apply=add)

    def by(v: Instruction) -> Instruction:
        return p.spread(v, x.shape.dims, (feature,))

    def share(v: Instruction) -> Instruction:
        return by(p.op("divide", v, p.full(count, v.shape)))

    inner = p.op("subtract", gradient, share(offset_gradient))
    inner = p.op("subtract", inner, p.op("multiply", y, share(scale_gradient)))
    return _out(p, i.shape, p.op("multiply", by(p.op("multiply", scale, root)), inner), scale_gradient, offset_gradient)


_PROGRAMS: Mapping[str, Callable[[Instruction], Computation]] = MappingProxyType(
    {
        "batch-norm-inference": _batch_norm_inference,
        "batch-norm-training": _batch_norm_training,
        "batch-norm-grad": _batch_norm_grad,
    }
)
