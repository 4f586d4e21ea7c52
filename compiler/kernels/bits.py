"""bitcast-convert between types of different widths: a dimension of parts appears or disappears."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from shardc.compiler.kernels.affine import Expr, Mask
from shardc.compiler.kernels.elements import Elements, Index
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir import Instruction
from shardc.hlo.types import DTYPES, DType, array_shape

__all__ = ["bitcast_element", "scalar_op"]


@lru_cache(maxsize=4096)
def scalar_op(opcode: str, result: DType, *operands: DType) -> Instruction:
    """An elementwise instruction over scalars, for rules that need arithmetic of their own."""
    parameters = [Instruction("parameter", array_shape(d), attrs={"index": n}) for n, d in enumerate(operands)]
    return Instruction(opcode, array_shape(result), parameters)


def bitcast_element(e: Elements, i: Instruction, index: Index, mask: Mask) -> Any:
    """The element of a bitcast-convert; the least significant part comes first."""
    operand = i.operands[0]
    source, target = operand.shape.dtype, i.shape.dtype
    if source.bits == target.bits:
        return e.elementwise(i, [e.value(operand, index, mask)])
    if (
        source.is_complex
        or target.is_complex
        or min(source.bits, target.bits) < 8
        or "pred" in (source.kind, target.kind)
    ):
        raise UnsupportedError(f"bitcast-convert from {source} to {target}", where=f"%{i.name}")
    wide, narrow = (DTYPES[f"u{d.bits}"] for d in sorted((source, target), key=lambda d: -d.bits))
    if source.bits > target.bits:
        whole = _cast(e, e.value(operand, index[:-1], mask), source, wide)
        distance = e.iota(index[-1] * narrow.bits, wide)
        part = e.elementwise(scalar_op("shift-right-logical", wide, wide, wide), [whole, distance])
        return _cast(e, e.elementwise(scalar_op("convert", narrow, wide), [part]), narrow, target)
    total: Any = None
    for k in range(wide.bits // narrow.bits):
        part = _cast(e, e.value(operand, (*index, Expr(k)), mask), source, narrow)
        part = e.elementwise(scalar_op("convert", wide, narrow), [part])
        shifted = e.elementwise(scalar_op("shift-left", wide, wide, wide), [part, e.constant(k * narrow.bits, wide)])
        total = shifted if total is None else e.elementwise(scalar_op("or", wide, wide, wide), [total, shifted])
    return _cast(e, total, wide, target)


def _cast(e: Elements, value: Any, source: DType, target: DType) -> Any:
    return value if source is target else e.elementwise(scalar_op("bitcast-convert", target, source), [value])
