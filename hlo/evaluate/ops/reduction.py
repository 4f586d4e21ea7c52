"""NumPy meaning: reductions, sort, top-k and scan."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from shardc.hlo.evaluate.arithmetic import total_order
from shardc.hlo.evaluate.body import MONOIDS, fold
from shardc.hlo.evaluate.interpreter import Interpreter, OpMeaning
from shardc.hlo.evaluate.sorting import sort_rows
from shardc.hlo.evaluate.values import COMPUTE, Array, Value, cast
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.reducers import reducer_opcode

__all__ = ["ROWS", "one_or_tuple", "reduce_axes"]


def one_or_tuple(i: Instruction, results: Sequence[Array]) -> Value:
    """The value of an instruction that gives an array or a tuple of them."""
    return tuple(results) if i.shape.is_tuple else results[0]


def reduce_axes(
    m: Interpreter, body: Computation, arrays: Sequence[Array], inits: Sequence[Array], axes: Sequence[int]
) -> list[Array]:
    """Reduce ``axes`` of each array by ``body``; small floats are summed in f32 and rounded once."""
    kinds = [m.storage_type(leaf.dtype) for leaf in body.root.shape.leaves()]
    opcode = reducer_opcode(body)
    if opcode is not None:
        function, wide = MONOIDS[opcode], COMPUTE[kinds[0]]
        reduced = function.reduce(
            arrays[0].astype(wide, copy=False), axis=tuple(axes), dtype=wide, initial=inits[0].astype(wide)[()]
        )
        return [cast(np.asarray(reduced), kinds[0])]
    kept = [d for d in range(arrays[0].ndim) if d not in axes]
    dims = [arrays[0].shape[d] for d in kept]
    count = math.prod(arrays[0].shape[d] for d in axes)
    rows = [a.transpose([*axes, *kept]).reshape(count, *dims) for a in arrays]
    return [cast(r, k) for r, k in zip(fold(m, body, rows, inits), kinds, strict=True)]


def _reduce(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
    count = len(operands) // 2
    axes = sorted(i.attrs["dimensions"])
    return one_or_tuple(i, reduce_axes(m, i.attrs["to_apply"], operands[:count], operands[count:], axes))


def _sort(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
    axis = i.attrs["dimensions"][0]
    rows = [np.moveaxis(x, axis, -1) for x in operands]
    return one_or_tuple(i, [np.moveaxis(r, -1, axis) for r in sort_rows(m, i.attrs["to_apply"], rows)])


def _topk(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
    """Largest (or smallest) first, equal ones by position."""
    x: Array = operands[0]
    keys = total_order(x) if i.operands[0].shape.dtype.is_float else x.astype(COMPUTE[x.dtype], copy=False)
    if i.attrs.get("largest", True):
        # Reversing twice keeps equal elements in order of position.
        order = x.shape[-1] - 1 - np.argsort(keys[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    else:
        order = np.argsort(keys, axis=-1, kind="stable")
    order = order[..., : i.attrs["k"]]
    return (np.take_along_axis(x, order, axis=-1), order.astype(i.shape.elements[1].dtype.numpy))


def _scan(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
    """Slices along the dimension go through the body in order, with the carries of the step before."""
    count = i.attrs.get("num_carries", len(operands) // 2)
    split = len(operands) - count
    arrays, carries = operands[:split], tuple(operands[split:])
    axis = i.attrs["dimensions"][0]
    body: Computation = i.attrs["to_apply"]
    size = arrays[0].shape[axis]
    outputs: list[list[Array]] = []
    steps = reversed(range(size)) if i.attrs.get("is_reverse", False) else range(size)
    for k in steps:
        results = m.run_one(body, [*(np.take(a, k, axis=axis) for a in arrays), *carries])
        results = results if isinstance(results, tuple) else (results,)
        outputs.append(list(results[: len(results) - count]))
        carries = results[len(results) - count :]
    if i.attrs.get("is_reverse", False):
        outputs.reverse()
    stacked = [np.stack(column, axis=axis) for column in zip(*outputs, strict=True)]
    if not outputs:
        stacked = [np.empty(s.dims, m.storage_type(s.dtype)) for s in i.shape.elements[: len(i.shape.elements) - count]]
    return (*stacked, *carries)


ROWS: Mapping[str, OpMeaning] = {
    "reduce": OpMeaning(_reduce),
    "sort": OpMeaning(_sort),
    "topk": OpMeaning(_topk),
    "scan": OpMeaning(_scan),
}
