"""stochastic-convert: round up in magnitude where the random bits are less than the fraction."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.operations import Operations

__all__ = ["ROWS"]


def _stochastic_convert(i: Instruction) -> Computation:
    """To other types than integers it is an ordinary conversion."""
    p = Operations(i)
    x, random = p.parameters
    target = i.shape.dtype.name
    if not i.shape.dtype.is_integer:
        return p.build(p.convert(x, target))
    if x.shape.dtype.bits < 32:
        x = p.convert(x, "f32")
    size = p.op("abs", x)
    whole = p.op("floor", size)
    scale = p.full(2.0**random.shape.dtype.bits, x.shape)
    limit = p.convert(p.op("multiply", p.op("subtract", size, whole), scale), random.shape.dtype.name)
    up = p.convert(p.compare("LT", random, limit), x.shape.dtype.name)
    rounded = p.op("add", whole, up)
    negative = p.compare("LT", x, p.full(0.0, x.shape))
    return p.build(p.convert(p.op("select", negative, p.op("negate", rounded), rounded), target))


ROWS: Mapping[str, Callable[[Instruction], Computation]] = {"stochastic-convert": _stochastic_convert}
