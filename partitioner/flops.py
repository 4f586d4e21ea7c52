"""Floating point (and integer) operations of one instruction on one device."""

from __future__ import annotations

import math

from shardc.hlo.ir import Computation, Instruction
from shardc.hlo.opset import OPS, ConvDims

__all__ = ["instruction_flops"]

#: Elementwise operations that only move or retype.
_MOVES = frozenset(("copy", "convert", "bitcast-convert", "real", "imag", "complex", "reduce-precision"))


def instruction_flops(op: Instruction) -> int:
    """Arithmetic operations of one execution: 2 per multiply-add, 1 per element of an elementwise operation.

    Reductions and scatters count their combining operation once per element read; what moves data counts nothing.
    Called computations count where they are called, not here.
    """
    if op.opcode == "dot":
        contracted: tuple[int, ...] = op.attrs.get("lhs_contracting_dims") or ()
        return 2 * op.shape.size * math.prod(op.operands[0].shape.dims[d] for d in contracted)
    if op.opcode == "convolution":
        return _convolution(op)
    if op.opcode in ("reduce", "scan"):
        elements = op.operands[0].shape.size
        return elements * _body(op, "to_apply")
    if op.opcode == "reduce-window":
        window: int = math.prod(d.size for d in op.attrs["window"].dims)
        return next(op.shape.leaves()).size * window * _body(op, "to_apply")
    if op.opcode == "scatter":
        return op.operands[-1].shape.size * _body(op, "to_apply")
    if op.opcode == "map":
        return op.shape.size * _body(op, "to_apply")
    if OPS[op.opcode].family == "elementwise" and op.opcode not in _MOVES:
        return op.shape.size
    return 0


def _convolution(op: Instruction) -> int:
    dims: ConvDims = op.attrs["dim_labels"]
    kernel = op.operands[1].shape.dims
    window = math.prod(kernel[d] for d in dims.rhs_spatial)
    return 2 * op.shape.size * window * kernel[dims.rhs_input_feature]


def _body(op: Instruction, role: str) -> int:
    """Operations of a scalar computation."""
    body: Computation = op.attrs[role]
    return sum(1 for i in body if OPS[i.opcode].family == "elementwise" and i.opcode not in _MOVES)
