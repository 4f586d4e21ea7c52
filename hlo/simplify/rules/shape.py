"""Chains and identities of data movement: broadcast, reshape, transpose, slice, pad, concatenate, reverse, iota."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import broadcast_scalar, constant, make, reshape, splat_source, transpose

__all__ = ["RULES"]


def same_shape(i: Instruction) -> Instruction | None:
    """A reshape or slice that changes nothing."""
    operand = i.operands[0]
    return operand if operand.shape.plain == i.shape.plain else None


def bitcast_is_reshape(i: Instruction) -> Instruction | None:
    operand = i.operands[0]
    if operand.shape.dtype is i.shape.dtype and operand.shape.size == i.shape.size:
        return reshape(operand, i.shape.dims, i)
    return None


def reshape_of_reshape(i: Instruction) -> Instruction | None:
    inner = i.operands[0]
    return reshape(inner.operands[0], i.shape.dims, i) if inner.opcode == "reshape" else None


def reshape_of_splat(i: Instruction) -> Instruction | None:
    source = splat_source(i.operands[0]) if i.operands[0].opcode == "broadcast" else None
    return broadcast_scalar(source, i.shape.dims, i) if source is not None else None


def reshape_of_constant(i: Instruction) -> Instruction | None:
    inner = i.operands[0]
    if inner.opcode != "constant" or inner.attrs["literal"].is_left_out:
        return None
    return constant(Literal(inner.attrs["literal"].array.reshape(i.shape.dims)), i)


def splat_constant_is_broadcast(i: Instruction) -> Instruction | None:
    """A constant of one value is kept as a scalar, so that it folds into kernels as an immediate."""
    literal = i.attrs["literal"]
    if not i.shape.is_array or not i.shape.dims or not literal.is_splat:
        return None
    return broadcast_scalar(constant(Literal(literal.splat), i), i.shape.dims, i)


def broadcast_of_broadcast(i: Instruction) -> Instruction | None:
    inner = i.operands[0]
    if inner.opcode != "broadcast":
        return None
    outer = i.attrs["dimensions"]
    dimensions = tuple(outer[d] for d in inner.attrs["dimensions"])
    return make("broadcast", i.shape, inner.operands, i, dimensions=dimensions)


def broadcast_adds_ones(i: Instruction) -> Instruction | None:
    """A broadcast that keeps the order and adds only dimensions of size 1 is a reshape (a splat of a scalar stays)."""
    operand, dimensions = i.operands[0], i.attrs["dimensions"]
    if not operand.shape.dims and i.shape.dims:
        return None
    if operand.shape.size != i.shape.size or operand.shape.size == 0 or list(dimensions) != sorted(dimensions):
        return None
    return reshape(operand, i.shape.dims, i)


def broadcast_of_added_ones(i: Instruction) -> Instruction | None:
    """broadcast(reshape(x)) where the reshape only adds dimensions of size 1 is broadcast(x)."""
    inner = i.operands[0]
    if inner.opcode != "reshape":
        return None
    source = inner.operands[0]
    if 1 in source.shape.dims or tuple(d for d in inner.shape.dims if d != 1) != source.shape.dims:
        return None
    outer = i.attrs["dimensions"]
    dimensions = tuple(outer[d] for d, n in enumerate(inner.shape.dims) if n != 1)
    return make("broadcast", i.shape, (source,), i, dimensions=dimensions)


def transpose_identity(i: Instruction) -> Instruction | None:
    """A transpose that moves only dimensions of size 1 is a reshape."""
    operand = i.operands[0]
    moving = [p for p in i.attrs["dimensions"] if operand.shape.dims[p] != 1]
    return reshape(operand, i.shape.dims, i) if moving == sorted(moving) else None


def transpose_of_transpose(i: Instruction) -> Instruction | None:
    inner = i.operands[0]
    if inner.opcode != "transpose":
        return None
    permutation = tuple(inner.attrs["dimensions"][p] for p in i.attrs["dimensions"])
    return transpose(inner.operands[0], permutation, i)


def transpose_of_broadcast(i: Instruction) -> Instruction | None:
    inner = i.operands[0]
    if inner.opcode != "broadcast":
        return None
    position = {p: n for n, p in enumerate(i.attrs["dimensions"])}
    dimensions = tuple(position[d] for d in inner.attrs["dimensions"])
    return make("broadcast", i.shape, inner.operands, i, dimensions=dimensions)


def slice_of_slice(i: Instruction) -> Instruction | None:
    inner = i.operands[0]
    if inner.opcode != "slice":
        return None
    merged = tuple(
        (a + lo * s, min(b, a + hi * s), s * t)
        for (a, b, s), (lo, hi, t) in zip(inner.attrs["slice"], i.attrs["slice"], strict=True)
    )
    return make("slice", i.shape, inner.operands, i, slice=merged)


def slice_of_splat(i: Instruction) -> Instruction | None:
    inner = i.operands[0]
    source = splat_source(inner) if inner.opcode == "broadcast" else None
    return broadcast_scalar(source, i.shape.dims, i) if source is not None else None


def slice_of_concatenate(i: Instruction) -> Instruction | None:
    """A slice that lies within one piece of a concatenate reads only that piece."""
    inner = i.operands[0]
    if inner.opcode != "concatenate":
        return None
    (d,) = inner.attrs["dimensions"]
    low, high, stride = i.attrs["slice"][d]
    start = 0
    for piece in inner.operands:
        end = start + piece.shape.dims[d]
        if start <= low and high <= end and low < high:
            bounds = list(i.attrs["slice"])
            bounds[d] = (low - start, high - start, stride)
            return make("slice", i.shape, (piece,), i, slice=tuple(bounds))
        start = end
    return None


def pad_nothing(i: Instruction) -> Instruction | None:
    return i.operands[0] if not any(map(any, i.attrs["padding"])) else None


def concatenate_few(i: Instruction) -> Instruction | None:
    """Empty pieces go; one piece alone is the value."""
    pieces = tuple(o for o in i.operands if o.shape.size)
    if len(pieces) == 1 and pieces[0].shape.plain == i.shape.plain:
        return pieces[0]
    if len(pieces) == len(i.operands) or not pieces:
        return None
    return make("concatenate", i.shape, pieces, i, **i.attrs)


def reverse_of_ones(i: Instruction) -> Instruction | None:
    moving = tuple(d for d in i.attrs["dimensions"] if i.shape.dims[d] != 1)
    if len(moving) == len(i.attrs["dimensions"]):
        return None
    return make("reverse", i.shape, i.operands, i, dimensions=moving) if moving else i.operands[0]


def movement_of_nothing(i: Instruction) -> Instruction | None:
    """reverse or transpose of a splat is the splat."""
    inner = i.operands[0]
    source = splat_source(inner) if inner.opcode == "broadcast" else None
    return broadcast_scalar(source, i.shape.dims, i) if source is not None else None


RULES: Mapping[str, tuple[Callable[[Instruction], Instruction | None], ...]] = {
    "reshape": (same_shape, reshape_of_reshape, reshape_of_splat, reshape_of_constant),
    "bitcast": (bitcast_is_reshape,),
    "constant": (splat_constant_is_broadcast,),
    "broadcast": (broadcast_of_broadcast, broadcast_adds_ones, broadcast_of_added_ones),
    "transpose": (transpose_identity, transpose_of_transpose, transpose_of_broadcast),
    "slice": (same_shape, slice_of_slice, slice_of_splat, slice_of_concatenate),
    "pad": (pad_nothing,),
    "concatenate": (concatenate_few,),
    "reverse": (reverse_of_ones, movement_of_nothing),
}
