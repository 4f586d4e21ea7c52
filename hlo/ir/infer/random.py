"""Shape inference: random numbers."""

from __future__ import annotations

from shardc.hlo.ir.infer.rule import Attrs, ShapeRule, Shapes, fail, need_array, shape_required, shapes_agree
from shardc.hlo.ir.types import Shape, array_shape

__all__ = ["RULES"]

_STATE_SIZES = {"rng_three_fry": (2,), "rng_philox": (2, 3), "rng_default": (2, 3)}


def _rng(shapes: Shapes, attrs: Attrs, shape: Shape) -> None:
    need_array(shape, "result")
    for k, s in enumerate(shapes):
        if s.rank or s.dtype is not shape.dtype:
            fail(f"operand {k} is {s}, not a scalar {shape.dtype}")


def _rng_bit_generator(shapes: Shapes, attrs: Attrs, shape: Shape) -> None:
    algorithm, state = attrs["algorithm"], need_array(shapes[0], "state")
    sizes = _STATE_SIZES.get(algorithm)
    if sizes is None:
        fail(f"algorithm {algorithm!r} is not one of {', '.join(_STATE_SIZES)}")
    if state.rank != 1 or state.nbytes not in [8 * n for n in sizes]:
        fail(f"{algorithm} does not take a state of {state}")
    if len(shape.elements) != 2 or not shapes_agree(shape.elements[0], state):
        fail(f"the result is (state, bits) with a state of {state}, not {shape}")


def _state(shapes: Shapes, attrs: Attrs) -> Shape:
    return array_shape("u64", 2)


RULES = {
    "rng": shape_required(_rng),
    "rng-bit-generator": shape_required(_rng_bit_generator),
    "rng-get-and-update-state": ShapeRule(_state),
}
