"""Element rules of the ops that reduce: reduce, dot, reduce-window, convolution, as folds over extra loops."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

from shardc.compiler.elements.affine import Expr, InRange, Mask, condition, divmod_expr
from shardc.compiler.elements.bits import scalar_op
from shardc.compiler.elements.elements import Answer, ElementRule, Elements, Fold, Index
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.opset import Window, WindowDim
from shardc.hlo.ir.reducers import any_order, identity_of
from shardc.hlo.ir.types import DType, array_shape

__all__ = ["FOLDS", "adder", "convert_element", "find_running_dimension", "window_position"]


@lru_cache(maxsize=64)
def adder(dtype: DType) -> Computation:
    """``(a, b) -> a + b`` over scalars; ``or`` for pred."""
    shape = array_shape(dtype)
    a = Instruction("parameter", shape, attrs={"index": 0})
    b = Instruction("parameter", shape, attrs={"index": 1})
    root = Instruction("or" if dtype.kind == "pred" else "add", shape, (a, b))
    return Computation(f"add_{dtype}", (a, b, root), root)


def convert_element(e: Elements, value: Answer, source: DType, target: DType) -> Answer:
    """An element of ``source`` as one of ``target``."""
    return value if source is target else e.elementwise(scalar_op("convert", target, source), [value])


def product(e: Elements, x: Answer, y: Answer, source: tuple[DType, DType], target: DType) -> Answer:
    """x * y in ``target``; narrow floats multiply in f32, unrounded."""
    x = convert_element(e, x, source[0], target)
    y = convert_element(e, y, source[1], target)
    opcode = "and" if target.kind == "pred" else "multiply"
    return e.elementwise(scalar_op(opcode, target, target, target), [x, y], wide=True)


def _reduce(e: Elements, i: Instruction, index: Index, mask: Mask) -> Answer:
    count = len(i.operands) // 2
    inputs, inits = i.operands[:count], i.operands[count:]
    dims = tuple(i.attrs["dimensions"])
    shape = inputs[0].shape.dims

    def element(e: Elements, position: Index, mask: Mask) -> Sequence[Answer]:
        folded, kept = iter(position), iter(index)
        at = {d: next(folded) for d in dims}
        where = tuple(at[d] if d in at else next(kept) for d in range(len(shape)))
        return [e.value(x, where, mask) for x in inputs]

    reducer = i.attrs["to_apply"]
    fold = Fold(
        tuple(shape[d] for d in dims),
        element,
        reducer,
        tuple(x.shape.dtype for x in inputs),
        lambda e: [e.value(x, ()) for x in inits],
        order="any" if len(inputs) == 1 and identity_of(reducer, inputs[0].shape.dtype) is not None else "runs",
    )
    values = e.fold(i, index, mask, fold)
    return values if i.shape.is_tuple else values[0]


def _dot(e: Elements, i: Instruction, index: Index, mask: Mask) -> Answer:
    lhs, rhs = i.operands
    a = i.attrs
    left_batch, right_batch = a.get("lhs_batch_dims", ()), a.get("rhs_batch_dims", ())
    left_sum, right_sum = a.get("lhs_contracting_dims", ()), a.get("rhs_contracting_dims", ())
    free = lhs.shape.rank - len(left_batch) - len(left_sum)
    batch = index[: len(left_batch)]
    rows, columns = index[len(left_batch) : len(left_batch) + free], index[len(left_batch) + free :]
    kind = i.shape.dtype.accumulator

    def element(e: Elements, position: Index, mask: Mask) -> Sequence[Answer]:
        x = e.value(lhs, _dot_index(lhs.shape.rank, left_batch, left_sum, batch, position, rows), mask)
        y = e.value(rhs, _dot_index(rhs.shape.rank, right_batch, right_sum, batch, position, columns), mask)
        return [product(e, x, y, (lhs.shape.dtype, rhs.shape.dtype), kind)]

    sizes = tuple(lhs.shape.dims[d] for d in left_sum)
    value = e.fold(i, index, mask, Fold(sizes, element, adder(kind), (kind,), None))[0]
    return convert_element(e, value, kind, i.shape.dtype)


def _dot_index(
    rank: int, batch_dims: Sequence[int], sum_dims: Sequence[int], batch: Index, position: Index, free: Index
) -> Index:
    known = dict(zip(batch_dims, batch, strict=True)) | dict(zip(sum_dims, position, strict=True))
    rest = iter(free)
    return tuple(known[d] if d in known else next(rest) for d in range(rank))


def window_position(e: Elements, out: Expr, inner: Expr, size: int, w: WindowDim) -> tuple[Expr, list[InRange] | None]:
    """Input position that window offset ``inner`` of output ``out`` reads, and when it exists (None: never)."""
    offset = (Expr(w.size - 1) - inner if w.reversal else inner) * w.rhs_dilate
    position = out * w.stride + offset - w.pad_low
    tests = [condition(position, 0, (size - 1) * w.lhs_dilate + 1)]
    if w.lhs_dilate > 1:
        position, rest = divmod_expr(e.source, position, w.lhs_dilate)
        tests.append(condition(rest, 0, 1))
    if size == 0 or any(t is False for t in tests):
        return position, None
    return position, [t for t in tests if isinstance(t, InRange)]


def _reduce_window(e: Elements, i: Instruction, index: Index, mask: Mask) -> Answer:
    count = len(i.operands) // 2
    inputs, inits = i.operands[:count], i.operands[count:]
    window = i.attrs["window"].dims
    shape = inputs[0].shape.dims

    def positions(e: Elements, position: Index) -> list[tuple[Expr, list[InRange] | None]]:
        parts = zip(index, position, shape, window, strict=True)
        return [window_position(e, out, inner, n, w) for out, inner, n, w in parts]

    def taken(e: Elements, position: Index) -> Mask | None:
        tests = [t for _, t in positions(e, position)]
        return None if None in tests else tuple(c for t in tests for c in t or ())

    def element(e: Elements, position: Index, mask: Mask) -> Sequence[Answer]:
        where = tuple(at for at, _ in positions(e, position))
        return [e.value(x, where, mask) for x in inputs]

    free = len(inputs) == 1 and any_order(i.attrs["to_apply"], inputs[0].shape.dtype)
    places = next(i.shape.leaves()).size
    fold = Fold(
        tuple(w.size for w in window),
        element,
        i.attrs["to_apply"],
        tuple(x.shape.dtype for x in inputs),
        lambda e: [e.value(x, ()) for x in inits],
        wide=False,
        taken=taken,
        order="any" if free and math.prod(w.size for w in window) > places else "steps",
    )
    values = e.fold(i, index, mask, fold)
    return values if i.shape.is_tuple else values[0]


def find_running_dimension(i: Instruction) -> tuple[int, bool] | None:
    """The one dimension whose windows reach from its start to their position, or (True) from there to its end."""
    dims = i.operands[0].shape.dims
    window = i.attrs["window"].dims
    moving = [d for d, w in enumerate(window) if w != WindowDim(1, rhs_dilate=w.rhs_dilate, reversal=w.reversal)]
    if len(moving) != 1 or 0 in dims:
        return None
    (d,) = moving
    w = window[d]
    if w.size < dims[d] or (w.stride, w.lhs_dilate, w.rhs_dilate, w.reversal) != (1, 1, 1, False):
        return None
    if (w.pad_low, w.pad_high) == (w.size - 1, 0):
        return d, False
    return (d, True) if (w.pad_low, w.pad_high) == (0, w.size - 1) else None


def _convolution(e: Elements, i: Instruction, index: Index, mask: Mask) -> Answer:
    lhs, rhs = i.operands
    a = i.attrs
    d = a["dim_labels"]
    window = a.get("window", Window(())).dims
    kind = i.shape.dtype.accumulator
    feature = index[d.out_feature]
    outputs = rhs.shape.dims[d.rhs_output_feature]
    inputs = rhs.shape.dims[d.rhs_input_feature]
    groups, batches = a.get("feature_group_count", 1), a.get("batch_group_count", 1)
    group, _ = divmod_expr(e.source, feature, outputs // groups) if groups > 1 else (Expr(), feature)
    part, _ = divmod_expr(e.source, feature, outputs // batches) if batches > 1 else (Expr(), feature)

    def element(e: Elements, position: Index, mask: Mask) -> Sequence[Answer]:
        channel, inner = position[-1], position[:-1]
        left: dict[int, Expr] = {
            d.lhs_batch: index[d.out_batch] + part * (lhs.shape.dims[d.lhs_batch] // batches),
            d.lhs_feature: channel + group * inputs,
        }
        right = {d.rhs_input_feature: channel, d.rhs_output_feature: feature}
        conditions: list[InRange] = []
        for number, w in enumerate(window):
            dim = d.lhs_spatial[number]
            at, tests = window_position(e, index[d.out_spatial[number]], inner[number], lhs.shape.dims[dim], w)
            if tests is None:
                return [e.constant(0, kind)]
            left[dim] = at
            right[d.rhs_spatial[number]] = inner[number]
            conditions.extend(tests)
        x = e.value(lhs, tuple(left[k] for k in range(lhs.shape.rank)), (*mask, *conditions))
        y = e.value(rhs, tuple(right[k] for k in range(rhs.shape.rank)), mask)
        value = product(e, x, y, (lhs.shape.dtype, rhs.shape.dtype), kind)
        return [e.choose(conditions, value, e.constant(0, kind)) if conditions else value]

    sizes = (*(w.size for w in window), inputs)
    value = e.fold(i, index, mask, Fold(sizes, element, adder(kind), (kind,), None))[0]
    return convert_element(e, value, kind, i.shape.dtype)


FOLDS: Mapping[str, ElementRule] = MappingProxyType(
    {"reduce": _reduce, "dot": _dot, "reduce-window": _reduce_window, "convolution": _convolution}
)
