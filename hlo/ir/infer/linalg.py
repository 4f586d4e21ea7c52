"""Shape inference: factorisations, FFT and batch normalisation."""

from __future__ import annotations

from shardc.hlo.ir.infer.rule import Attrs, RuleError, ShapeRule, Shapes, fail, need_array, need_dims
from shardc.hlo.ir.types import DTYPES, Shape, tuple_shape

__all__ = ["RULES"]


def _need_square(shape: Shape) -> None:
    if shape.rank < 2 or shape.dims[-1] != shape.dims[-2]:
        fail(f"{shape} is not a batch of square matrices", max(shape.rank - 1, 0))
    if not (shape.dtype.is_float or shape.dtype.is_complex):
        fail(f"element type {shape.dtype} is not a float")


def _cholesky(shapes: Shapes, attrs: Attrs) -> Shape:
    _need_square(need_array(shapes[0]))
    return shapes[0].plain


def _triangular_solve(shapes: Shapes, attrs: Attrs) -> Shape:
    a, b = need_array(shapes[0], "a"), need_array(shapes[1], "b")
    _need_square(a)
    if b.rank != a.rank or b.dims[:-2] != a.dims[:-2] or a.dtype is not b.dtype:
        fail(f"b {b} does not fit a {a}")
    side = -2 if attrs.get("left_side", False) else -1
    if b.dims[side] != a.dims[-1]:
        fail(f"b has size {b.dims[side]}, a has size {a.dims[-1]}", b.rank + side)
    return b.plain


def _fft(shapes: Shapes, attrs: Attrs) -> Shape:
    operand, kind, lengths = need_array(shapes[0]), attrs["fft_type"], tuple(attrs["fft_length"])
    rank = len(lengths)
    if not 1 <= rank <= 3 or operand.rank < rank:
        fail(f"fft_length {lengths} for {operand}")
    last = lengths[-1] // 2 + 1
    expected = (*lengths[:-1], last) if kind == "IRFFT" else lengths
    for k in range(rank):
        d = operand.rank - rank + k
        if operand.dims[d] != expected[k]:
            fail(f"{kind} of length {lengths[k]} needs size {expected[k]}, not {operand.dims[d]}", d)
    wide = operand.dtype.name in ("f64", "c128")
    if kind == "RFFT" and operand.dtype.is_float:
        return Shape(DTYPES["c128" if wide else "c64"], (*operand.dims[:-1], last))
    if kind == "IRFFT" and operand.dtype.is_complex:
        return Shape(DTYPES["f64" if wide else "f32"], (*operand.dims[:-1], lengths[-1]))
    if kind in ("FFT", "IFFT") and operand.dtype.is_complex:
        return operand.plain
    raise RuleError(f"{kind} of element type {operand.dtype}")


def _features(operand: Shape, attrs: Attrs, others: Shapes) -> Shape:
    need_dims((attrs["feature_index"],), need_array(operand).rank, "feature_index")
    features = operand.dims[attrs["feature_index"]]
    for k, s in enumerate(others):
        if s.dims != (features,):
            fail(f"operand {k + 1} is {s}, there are {features} features", attrs["feature_index"])
    return Shape(others[0].dtype, (features,))


def _training(shapes: Shapes, attrs: Attrs) -> Shape:
    features = _features(shapes[0], attrs, shapes[1:])
    return tuple_shape(shapes[0].plain, features, features)


def _inference(shapes: Shapes, attrs: Attrs) -> Shape:
    _features(shapes[0], attrs, shapes[1:])
    return shapes[0].plain


def _grad(shapes: Shapes, attrs: Attrs) -> Shape:
    features = _features(shapes[0], attrs, shapes[1:4])
    if shapes[4].dims != shapes[0].dims:
        fail(f"gradient {shapes[4]} does not have the shape of {shapes[0]}")
    return tuple_shape(shapes[0].plain, features, features)


RULES = {
    "cholesky": ShapeRule(_cholesky),
    "triangular-solve": ShapeRule(_triangular_solve),
    "fft": ShapeRule(_fft),
    "batch-norm-training": ShapeRule(_training),
    "batch-norm-inference": ShapeRule(_inference),
    "batch-norm-grad": ShapeRule(_grad),
}
