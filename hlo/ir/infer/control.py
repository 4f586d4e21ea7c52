"""Shape inference: tuples, calls, loops, branches, tokens and asynchronous wrappers."""

from __future__ import annotations

from shardc.hlo.ir.infer.custom_call import check_custom_call
from shardc.hlo.ir.infer.rule import Attrs, RuleError, ShapeRule, Shapes, fail, shape_required, shapes_agree
from shardc.hlo.ir.ir import Computation
from shardc.hlo.ir.types import DTYPES, Shape, array_shape, token_shape, tuple_shape

__all__ = ["RULES", "branches_of"]


def _anything(shapes: Shapes, attrs: Attrs, shape: Shape) -> None:
    """Any shape is possible."""


def _tuple(shapes: Shapes, attrs: Attrs) -> Shape:
    return tuple_shape(*shapes)


def _get_tuple_element(shapes: Shapes, attrs: Attrs) -> Shape:
    elements = shapes[0].elements
    if not shapes[0].is_tuple or not 0 <= attrs["index"] < len(elements):
        fail(f"{shapes[0]} has no element {attrs['index']}")
    return elements[attrs["index"]].plain


def _need_signature(body: Computation, shapes: Shapes) -> None:
    if len(body.parameters) != len(shapes):
        fail(f"%{body.name} has {len(body.parameters)} parameters, {len(shapes)} arguments are given")
    for k, (p, s) in enumerate(zip(body.parameters, shapes, strict=True)):
        if not shapes_agree(p.shape, s):
            fail(f"argument {k} is {s}, parameter {k} of %{body.name} is {p.shape}")


def _call(shapes: Shapes, attrs: Attrs) -> Shape:
    body: Computation = attrs["to_apply"]
    _need_signature(body, shapes)
    return body.root.shape.plain


def _fusion(shapes: Shapes, attrs: Attrs) -> Shape:
    body: Computation = attrs["calls"]
    _need_signature(body, shapes)
    return body.root.shape.plain


def _while(shapes: Shapes, attrs: Attrs) -> Shape:
    condition, body = attrs["condition"], attrs["body"]
    _need_signature(condition, shapes)
    _need_signature(body, shapes)
    if not shapes_agree(condition.root.shape, array_shape("pred")):
        fail(f"condition %{condition.name} returns {condition.root.shape}, not pred[]")
    if not shapes_agree(body.root.shape, shapes[0]):
        fail(f"body %{body.name} returns {body.root.shape}, the loop carries {shapes[0]}")
    return shapes[0].plain


def branches_of(attrs: Attrs) -> tuple[Computation, ...]:
    """The branches of a conditional; for a pred index the true branch comes first."""
    if "branch_computations" in attrs:
        return tuple(attrs["branch_computations"])
    if "true_computation" in attrs and "false_computation" in attrs:
        return (attrs["true_computation"], attrs["false_computation"])
    raise RuleError("conditional needs branch_computations, or true_computation and false_computation")


def _conditional(shapes: Shapes, attrs: Attrs) -> Shape:
    branches = branches_of(attrs)
    if not shapes or not branches or len(shapes) != len(branches) + 1:
        fail(f"{len(branches)} branches need an index and {len(branches)} arguments, not {len(shapes)} operands")
    index = shapes[0]
    if index.rank or index.dtype.name not in ("pred", "s32"):
        fail(f"branch index is {index}, not pred[] or s32[]")
    if index.dtype.name == "pred" and len(branches) != 2:
        fail(f"a pred index chooses between 2 branches, not {len(branches)}")
    result = branches[0].root.shape
    for branch, argument in zip(branches, shapes[1:], strict=True):
        _need_signature(branch, (argument,))
        if not shapes_agree(branch.root.shape, result):
            fail(f"branch %{branch.name} returns {branch.root.shape}, %{branches[0].name} returns {result}")
    return result.plain


def _first(shapes: Shapes, attrs: Attrs) -> Shape:
    if not shapes:
        fail("an operand is missing")
    return shapes[0].plain


def _after_all(shapes: Shapes, attrs: Attrs) -> Shape:
    for k, s in enumerate(shapes):
        if not s.is_token:
            fail(f"operand {k} is {s}, not a token")
    return token_shape()


def _barrier(shapes: Shapes, attrs: Attrs) -> Shape:
    return shapes[0].plain if len(shapes) == 1 else tuple_shape(*(s.plain for s in shapes))


def _copy_start(shapes: Shapes, attrs: Attrs) -> Shape:
    return tuple_shape(shapes[0].plain, shapes[0].plain, array_shape("u32"))


def _copy_done(shapes: Shapes, attrs: Attrs) -> Shape:
    if len(shapes[0].elements) < 2:
        fail(f"{shapes[0]} is not what copy-start gives")
    return shapes[0].elements[0].plain


def _async_start(shapes: Shapes, attrs: Attrs) -> Shape:
    body: Computation = attrs["calls"]
    _need_signature(body, shapes)
    return tuple_shape(tuple_shape(*(s.plain for s in shapes)), body.root.shape.plain)


def _check_async_start(shapes: Shapes, attrs: Attrs, shape: Shape) -> None:
    inferred = _async_start(shapes, attrs)
    if not shapes_agree(inferred, tuple_shape(*shape.elements[:2])):
        fail(f"shape is {shape}, its computation gives {inferred}")


def _async_done(shapes: Shapes, attrs: Attrs) -> Shape:
    if len(shapes[0].elements) < 2:
        fail(f"{shapes[0]} is not what async-start gives")
    return shapes[0].elements[1].plain


def _outfeed(shapes: Shapes, attrs: Attrs) -> Shape:
    return token_shape()


def _infeed(shapes: Shapes, attrs: Attrs, shape: Shape) -> None:
    if len(shape.elements) != 2 or not shape.elements[1].is_token:
        fail(f"infeed gives (data, token), not {shape}")


def _add_dependency(shapes: Shapes, attrs: Attrs) -> Shape:
    if shapes[1].dtype is not DTYPES["token"]:
        fail(f"operand 1 is {shapes[1]}, not a token")
    return shapes[0].plain


RULES = {
    "parameter": shape_required(_anything),
    "tuple": ShapeRule(_tuple),
    "get-tuple-element": ShapeRule(_get_tuple_element),
    "call": ShapeRule(_call),
    "while": ShapeRule(_while),
    "conditional": ShapeRule(_conditional),
    "fusion": ShapeRule(_fusion),
    "custom-call": shape_required(check_custom_call),
    "optimization-barrier": ShapeRule(_barrier),
    "after-all": ShapeRule(_after_all),
    "add-dependency": ShapeRule(_add_dependency),
    "domain": ShapeRule(_first),
    "copy-start": ShapeRule(_copy_start),
    "copy-done": ShapeRule(_copy_done),
    "async-start": ShapeRule(_async_start, _check_async_start),
    "async-update": ShapeRule(_first),
    "async-done": ShapeRule(_async_done),
    "infeed": shape_required(_infeed),
    "outfeed": ShapeRule(_outfeed),
}
