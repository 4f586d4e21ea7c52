"""bitcast; and sizes that are run-time values in form only: shapes are static, so they are checked as the step runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.operations import Operations
from shardc.hlo.ir.types import Shape, array_shape, tuple_shape

__all__ = ["ROWS"]


def _check(p: Operations, size: Instruction, expected: int) -> None:
    """The run fails unless ``size`` is what the shape says."""
    holds = p.compare("EQ", size, p.full(expected, size.shape))
    p.op("custom-call", holds, shape=tuple_shape(), custom_call_target="check.dimension_size")


def _get_dimension_size(i: Instruction) -> Computation:
    p = Operations(i)
    return p.build(p.full(i.operands[0].shape.dims[i.attrs["dimensions"][0]], array_shape("s32")))


def _set_dimension_size(i: Instruction) -> Computation:
    p = Operations(i)
    x, size = p.parameters
    _check(p, size, x.shape.dims[i.attrs["dimensions"][0]])
    return p.build(x)


def _dynamic_reshape(i: Instruction) -> Computation:
    p = Operations(i)
    x, *sizes = p.parameters
    for size, expected in zip(sizes, i.shape.dims, strict=True):
        _check(p, size, expected)
    return p.build(p.reshape(x, i.shape.dims))


def _order(shape: Shape) -> tuple[int, ...]:
    """Dimensions from the slowest in memory to the fastest."""
    return tuple(reversed(shape.layout.minor_to_major)) if shape.layout else tuple(range(shape.rank))


def _bitcast(i: Instruction) -> Computation:
    """The same bytes: transposed to how they lie in memory, read as the new type, transposed from the new layout."""
    p = Operations(i)
    (x,) = p.parameters
    source, target = i.operands[0].shape, i.shape
    order = _order(source)
    x = p.op("transpose", x, dimensions=order) if order != tuple(range(source.rank)) else x
    if source.dtype is not target.dtype:
        wide, narrow = max(source.dtype.bits, target.dtype.bits), min(source.dtype.bits, target.dtype.bits)
        whole = (source.size * source.dtype.bits // wide,)
        parts = whole if wide == narrow else (*whole, wide // narrow)
        x = p.reshape(x, whole if source.dtype.bits == wide else parts)
        dims = whole if target.dtype.bits == wide else parts
        x = p.op("bitcast-convert", x, shape=array_shape(target.dtype, *dims))
    order = _order(target)
    x = p.reshape(x, tuple(target.dims[d] for d in order))
    back = tuple(order.index(d) for d in range(target.rank))
    return p.build(p.op("transpose", x, dimensions=back) if back != tuple(range(target.rank)) else x)


ROWS: Mapping[str, Callable[[Instruction], Computation]] = {
    "bitcast": _bitcast,
    "get-dimension-size": _get_dimension_size,
    "set-dimension-size": _set_dimension_size,
    "dynamic-reshape": _dynamic_reshape,
}
