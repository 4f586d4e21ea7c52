"""NumPy meaning: matrix products."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shardc.hlo.evaluate.arithmetic import multiply
from shardc.hlo.evaluate.interpreter import Interpreter, OpMeaning
from shardc.hlo.evaluate.values import COMPUTE, Array, Value, cast
from shardc.hlo.ir.ir import Instruction

__all__ = ["ROWS", "dot_general", "product_type"]


def product_type(m: Interpreter, i: Instruction, *operands: Array) -> np.dtype[Any]:
    """The type a product is summed in: wide enough for operands and result; pred counts in s32."""
    kinds = [m.compute(i.shape.dtype), *(COMPUTE[x.dtype] for x in operands)]
    kind = np.result_type(*kinds)
    return np.dtype(np.int32) if kind == np.bool_ else kind


def dot_general(
    lhs: Array,
    rhs: Array,
    contract: tuple[Sequence[int], Sequence[int]],
    batch: tuple[Sequence[int], Sequence[int]] = ((), ()),
) -> Array:
    """Sum over the contracting dimensions; the result has batch, then lhs, then rhs dimensions."""
    free_l = [d for d in range(lhs.ndim) if d not in contract[0] and d not in batch[0]]
    free_r = [d for d in range(rhs.ndim) if d not in contract[1] and d not in batch[1]]
    sizes_b = [lhs.shape[d] for d in batch[0]]
    sizes_l, sizes_r = [lhs.shape[d] for d in free_l], [rhs.shape[d] for d in free_r]
    b, k = math.prod(sizes_b), math.prod(lhs.shape[d] for d in contract[0])
    left = lhs.transpose([*batch[0], *free_l, *contract[0]]).reshape(b, math.prod(sizes_l), k)
    right = rhs.transpose([*batch[1], *contract[1], *free_r]).reshape(b, k, math.prod(sizes_r))
    product = np.matmul(left, right) if lhs.dtype.kind != "c" else _complex_product(left, right)
    return product.reshape((*sizes_b, *sizes_l, *sizes_r))


def _complex_product(left: Array, right: Array) -> Array:
    """Terms in order: BLAS adds real and imaginary parts in ways that differ where they cancel."""
    total = np.zeros((*left.shape[:2], right.shape[2]), left.dtype)
    for k in range(left.shape[2]):
        total += multiply(left[:, :, k : k + 1], right[:, k : k + 1, :])
    return total


def _finish(m: Interpreter, i: Instruction, result: Array) -> Array:
    return result != 0 if i.shape.dtype.kind == "pred" else cast(result, m.storage_type(i.shape.dtype))


def _numbers(
    attrs: Mapping[str, Any],
) -> tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]:
    contract = (attrs.get("lhs_contracting_dims", ()), attrs.get("rhs_contracting_dims", ()))
    batch = (attrs.get("lhs_batch_dims", ()), attrs.get("rhs_batch_dims", ()))
    return contract, batch


def _dot(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    kind = product_type(m, i, *operands)
    lhs, rhs = (x.astype(kind, copy=False) for x in operands)
    return _finish(m, i, dot_general(lhs, rhs, *_numbers(i.attrs)))


def _ragged_dot(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    """One group of the ragged dimension at a time; what lies after the last group is zero."""
    kind = product_type(m, i, *operands[:2])
    lhs, rhs = (x.astype(kind, copy=False) for x in operands[:2])
    sizes: Array = operands[2]
    contract, batch = _numbers(i.attrs)
    ragged = i.attrs["lhs_ragged_dims"][0]
    group = i.attrs.get("rhs_group_dims", ())
    positions = np.arange(lhs.shape[ragged])
    shape = [1] * lhs.ndim
    shape[ragged] = -1
    parts: list[Array] = []
    for g in range(sizes.shape[-1]):
        ends = np.cumsum(sizes, axis=-1)[..., g : g + 1]
        inside = (positions >= ends - sizes[..., g : g + 1]) & (positions < ends)
        mask = _ragged_mask(inside, lhs.ndim, ragged, batch[0]) if inside.ndim > 1 else inside.reshape(shape)
        right = np.take(rhs, g, axis=group[0]) if group else rhs
        parts.append(dot_general(np.where(mask, lhs, 0).astype(kind), right, *_without(contract, batch, group)))
    result = np.stack(parts) if ragged in contract[0] else sum(parts[1:], parts[0])
    return _finish(m, i, np.asarray(result))


def _ragged_mask(inside: Array, rank: int, ragged: int, batch: Sequence[int]) -> Array:
    """Group sizes per batch: line the mask up with the lhs dimensions they belong to."""
    shape = [1] * rank
    for d, n in zip(batch, inside.shape[:-1], strict=False):
        shape[d] = n
    shape[ragged] = inside.shape[-1]
    return inside.reshape(shape)


def _without(
    contract: tuple[Sequence[int], Sequence[int]], batch: tuple[Sequence[int], Sequence[int]], group: Sequence[int]
) -> tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]:
    """Dimension numbers after the group dimension of the rhs is gone."""

    def shift(dims: Sequence[int]) -> list[int]:
        return [d - sum(g < d for g in group) for d in dims]

    return (contract[0], shift(contract[1])), (batch[0], shift(batch[1]))


def _scaled_dot(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    """Operands times their scales; a scale covers an equal block of each dimension, a scalar scale is absent."""
    kind = product_type(m, i, *operands[:2])
    scaled: list[Array] = []
    for x, s in zip(operands[:2], operands[2:], strict=True):
        x = x.astype(kind, copy=False)
        scale = s.astype(kind, copy=False)
        for d, n in enumerate(scale.shape):
            scale = np.repeat(scale, x.shape[d] // n, axis=d)
        scaled.append(x * scale if scale.ndim else x)
    return _finish(m, i, dot_general(scaled[0], scaled[1], *_numbers(i.attrs)))


ROWS: Mapping[str, OpMeaning] = {
    "dot": OpMeaning(_dot),
    "ragged-dot": OpMeaning(_ragged_dot),
    "scaled-dot": OpMeaning(_scaled_dot),
}
