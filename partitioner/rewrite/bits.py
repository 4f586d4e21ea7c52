"""Floats as the integers of their bits and back, for collectives that must not touch them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import DTYPES, DType

if TYPE_CHECKING:
    from shardc.partitioner.rewrite.emitter import Emitter

__all__ = ["as_integers", "from_integers"]


def as_integers(em: Emitter, x: Instruction) -> Instruction:
    """The bits of ``x``: of complex numbers real and imaginary parts, one after the other in a new first dimension.

    Floats below a byte, which have no NaN, are bf16 there. What is no float stays as it is.
    """
    dtype = x.shape.dtype
    if dtype.is_complex:
        real = DTYPES[f"f{dtype.bits // 2}"]
        parts = (em.add(part, x.shape.with_dtype(real), x) for part in ("real", "imag"))
        return em.concatenate([em.reshape(as_integers(em, p), (1, *x.shape.dims)) for p in parts], 0)
    if not dtype.is_float:
        return x
    if dtype.bits < 8:
        x = em.add("convert", x.shape.with_dtype(DTYPES["bf16"]), x)
    integer = DTYPES[f"u{x.shape.dtype.bits}"]
    return em.add("bitcast-convert", x.shape.with_dtype(integer), x)


def from_integers(em: Emitter, x: Instruction, dtype: DType) -> Instruction:
    """The array of which `as_integers` made ``x``."""
    if dtype.is_complex:
        real, dims = DTYPES[f"f{dtype.bits // 2}"], x.shape.dims[1:]
        parts = (from_integers(em, em.reshape(em.cut(x, 0, k, k + 1), dims), real) for k in range(2))
        return em.add("complex", x.shape.with_dims(dims).with_dtype(dtype), *parts)
    if not dtype.is_float:
        return x
    carrier = DTYPES["bf16"] if dtype.bits < 8 else dtype
    x = em.add("bitcast-convert", x.shape.with_dtype(carrier), x)
    return x if carrier is dtype else em.add("convert", x.shape.with_dtype(dtype), x)
