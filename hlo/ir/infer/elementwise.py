"""Shape inference: elementwise operations."""

from __future__ import annotations

from shardc.hlo.ir.infer.rule import (
    Attrs,
    ShapeRule,
    Shapes,
    common_float,
    fail,
    need_array,
    same_shape,
    shape_required,
)
from shardc.hlo.ir.types import DTYPES, Shape

__all__ = ["RULES"]

_KINDS = {
    "number": ("signed", "unsigned", "float", "complex"),
    "real": ("signed", "unsigned", "float"),
    "float": ("float",),
    "inexact": ("float", "complex"),
    "signed": ("signed", "float", "complex"),
    "bits": ("pred", "signed", "unsigned"),
    "integer": ("signed", "unsigned"),
    "any": ("pred", "signed", "unsigned", "float", "complex"),
}

_UNARY = {
    "inexact": (
        "acos acosh asin asinh atanh cbrt cosine cosh erf exponential exponential-minus-one log log-plus-one "
        "logistic rsqrt sine sinh sqrt tan tanh"
    ),
    "float": "ceil floor round-nearest-afz round-nearest-even reduce-precision",
    "number": "negate sign",
    "bits": "not popcnt count-leading-zeros",
    "any": "copy",
}
_BINARY = {
    "any": "add multiply maximum minimum subtract",
    "number": "divide power remainder",
    "inexact": "atan2",
    "bits": "and or xor",
    "integer": "shift-left shift-right-arithmetic shift-right-logical",
}
_DIRECTIONS = ("EQ", "NE", "GE", "GT", "LE", "LT")


def _same(kind: str) -> ShapeRule:
    allowed = _KINDS[kind]

    def infer(shapes: Shapes, attrs: Attrs) -> Shape:
        shape = same_shape(shapes)
        if shape.dtype.kind not in allowed:
            fail(f"element type {shape.dtype} is not one of: {', '.join(allowed)}")
        return shape

    return ShapeRule(infer)


def _copy(shapes: Shapes, attrs: Attrs) -> Shape:
    return shapes[0].plain


def _part(shapes: Shapes, attrs: Attrs) -> Shape:
    """abs, real, imag: complex numbers give their real type."""
    shape = need_array(shapes[0])
    if shape.dtype.is_complex:
        return Shape(DTYPES["f32" if shape.dtype.bits == 64 else "f64"], shape.dims)
    return shape.plain


def _is_finite(shapes: Shapes, attrs: Attrs) -> Shape:
    shape = need_array(shapes[0])
    if not shape.dtype.is_float:
        fail(f"is-finite needs floats, not {shape.dtype}")
    return Shape(DTYPES["pred"], shape.dims)


def _complex(shapes: Shapes, attrs: Attrs) -> Shape:
    shape = same_shape(shapes)
    if shape.dtype.name not in ("f32", "f64"):
        fail(f"complex needs f32 or f64 parts, not {shape.dtype}")
    return Shape(DTYPES["c64" if shape.dtype.bits == 32 else "c128"], shape.dims)


def _compare(shapes: Shapes, attrs: Attrs) -> Shape:
    if attrs["direction"] not in _DIRECTIONS:
        fail(f"direction {attrs['direction']!r} is not one of {', '.join(_DIRECTIONS)}")
    return Shape(DTYPES["pred"], same_shape(shapes).dims)


def _select(shapes: Shapes, attrs: Attrs) -> Shape:
    predicate = need_array(shapes[0], "predicate")
    if predicate.dtype.kind != "pred":
        fail(f"predicate has element type {predicate.dtype}, not pred")
    result = same_shape(shapes[1:])
    if predicate.rank and predicate.dims != result.dims:
        fail(f"predicate {predicate} is neither a scalar nor shaped as {result}")
    return result


def _clamp(shapes: Shapes, attrs: Attrs) -> Shape:
    low, value, high = (need_array(s) for s in shapes)
    for name, bound in (("lower", low), ("upper", high)):
        if common_float(bound.dtype, value.dtype) is None:
            fail(f"{name} bound has element type {bound.dtype}, the value {value.dtype}")
        if bound.rank and bound.dims != value.dims:
            fail(f"{name} bound {bound} is neither a scalar nor shaped as {value}")
    return value.plain


def _map(shapes: Shapes, attrs: Attrs) -> Shape:
    if not shapes:
        fail("map needs an operand")
    dims = need_array(shapes[0]).dims
    for position, s in enumerate(shapes):
        if s.dims != dims:
            fail(f"operand {position} is {s}, operand 0 is {shapes[0]}")
    result: Shape = attrs["to_apply"].root.shape
    if result.rank or not result.is_array:
        fail(f"the mapped computation returns {result}, not a scalar")
    return Shape(result.dtype, dims)


def _convert(shapes: Shapes, attrs: Attrs, shape: Shape) -> None:
    if need_array(shapes[0]).dims != need_array(shape, "result").dims:
        fail(f"conversion of {shapes[0]} cannot have shape {shape}")


def _bitcast_convert(shapes: Shapes, attrs: Attrs, shape: Shape) -> None:
    source, result = need_array(shapes[0]), need_array(shape, "result")
    wide, narrow = (source, result) if source.dtype.bits >= result.dtype.bits else (result, source)
    ratio = wide.dtype.bits // max(narrow.dtype.bits, 1)
    dims = wide.dims if ratio == 1 else (*wide.dims, ratio)
    if narrow.dims != dims or source.dtype.is_complex != result.dtype.is_complex:
        fail(f"the bits of {source} cannot be read as {result}")


def _rules() -> dict[str, ShapeRule]:
    rules = {
        "abs": ShapeRule(_part),
        "real": ShapeRule(_part),
        "imag": ShapeRule(_part),
        "is-finite": ShapeRule(_is_finite),
        "complex": ShapeRule(_complex),
        "compare": ShapeRule(_compare),
        "select": ShapeRule(_select),
        "clamp": ShapeRule(_clamp),
        "map": ShapeRule(_map),
        "convert": shape_required(_convert),
        "stochastic-convert": shape_required(_convert),
        "bitcast-convert": shape_required(_bitcast_convert),
    }
    for table in (_UNARY, _BINARY):
        for kind, opcodes in table.items():
            rules.update((o, _same(kind)) for o in opcodes.split())
    rules["copy"] = ShapeRule(_copy)
    return rules


RULES = _rules()
