"""A matrix product in parts: what becomes of it when one dimension of an operand, or of the result, is cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shardc.hlo.ir.infer import infer_shape
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import DTYPES
from shardc.partitioner.emit.emitter import Emitter

__all__ = ["EinsumIndex", "cut_of_operand", "cut_of_result", "multiply_parts"]

_SIDES = ("lhs", "rhs")


@dataclass(frozen=True, slots=True)
class EinsumIndex:
    """One index of a product: its dimension of the left and right operand and of the result, None where it has none."""

    dims: tuple[int | None, int | None]
    result: int | None


def _cuts(dot: Instruction) -> list[EinsumIndex]:
    """All indices: batch, free on the left, free on the right, contracted."""
    attrs: dict[str, tuple[int, ...]] = {
        f"{side}_{kind}": dot.attrs.get(f"{side}_{kind}_dims") or ()
        for side in _SIDES
        for kind in ("batch", "contracting")
    }
    out = [EinsumIndex((a, b), n) for n, (a, b) in enumerate(zip(attrs["lhs_batch"], attrs["rhs_batch"], strict=True))]
    for k, side in enumerate(_SIDES):
        for d in range(dot.operands[k].shape.rank):
            if d not in attrs[f"{side}_batch"] and d not in attrs[f"{side}_contracting"]:
                out.append(EinsumIndex((d, None) if k == 0 else (None, d), len(out)))
    pairs = zip(attrs["lhs_contracting"], attrs["rhs_contracting"], strict=True)
    return out + [EinsumIndex((a, b), None) for a, b in pairs]


def cut_of_operand(dot: Instruction, side: int, dim: int) -> EinsumIndex:
    """The index that is dimension ``dim`` of operand ``side`` (0 left, 1 right)."""
    return next(c for c in _cuts(dot) if c.dims[side] == dim)


def cut_of_result(dot: Instruction, dim: int) -> EinsumIndex:
    """The index that is dimension ``dim`` of the result."""
    return next(c for c in _cuts(dot) if c.result == dim)


def multiply_parts(
    e: Emitter,
    dot: Instruction,
    cut: EinsumIndex,
    operands: list[Instruction],
    start: Instruction,
    size: int,
    skip: int | None = None,
) -> Instruction:
    """The product for ``size`` elements of the cut index from ``start`` on.

    ``operands`` are whole but for the one numbered ``skip``, which is that part already. Sums of narrow floats are
    made in f32.
    """
    parts = list(operands)
    for k, d in enumerate(cut.dims):
        if d is not None and k != skip:
            parts[k] = e.dynamic_slice(operands[k], d, start, size)
    attrs: dict[str, Any] = dict(dot.attrs)
    shape = infer_shape("dot", parts, attrs)
    dtype = dot.shape.dtype
    wide = cut.result is None and dtype.is_float and dtype.bits < 32
    return e.add("dot", shape.with_dtype(DTYPES["f32"] if wide else dtype), *parts, **attrs)
