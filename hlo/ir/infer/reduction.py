"""Shape inference: reductions, sort, top-k and scan."""

from __future__ import annotations

from shardc.hlo.ir.infer.rule import Attrs, ShapeRule, Shapes, fail, need_array, need_dims, shapes_agree
from shardc.hlo.ir.types import DTYPES, Shape, tuple_shape

__all__ = ["RULES", "infer_reduced_shape", "reducer_types", "tuple_of"]


def tuple_of(shapes: Shapes) -> Shape:
    """One shape alone, several as a tuple."""
    return shapes[0] if len(shapes) == 1 else tuple_shape(*shapes)


def reducer_types(attrs: Attrs, inputs: Shapes, inits: Shapes, key: str = "to_apply") -> Shapes:
    """The scalar types that a reducing computation accumulates in; checks its signature."""
    body = attrs[key]
    count = len(inputs)
    if len(body.parameters) != 2 * count:
        fail(f"%{body.name} has {len(body.parameters)} parameters, {count} reduced arrays need {2 * count}")
    results: Shapes = body.root.shape.elements if body.root.shape.is_tuple else (body.root.shape,)
    if len(results) != count:
        fail(f"%{body.name} returns {len(results)} values, not {count}")
    for k, (value, init, result) in enumerate(zip(inputs, inits, results, strict=True)):
        if need_array(init, "initial value").rank:
            fail(f"initial value {k} must be a scalar, not {init}")
        if result.rank or not result.is_array:
            fail(f"%{body.name} returns {result}, not a scalar")
        for given in (value.dtype, init.dtype, body.parameters[k].shape.dtype):
            if given.kind != result.dtype.kind:
                fail(f"%{body.name} returns {result.dtype} where value {k} is {given}")
    return results


def infer_reduced_shape(attrs: Attrs, operands: Shapes, dims: tuple[int, ...]) -> Shape:
    """The result of reducing n arrays with n initial values to ``dims``: a tuple where the body returns one."""
    count = len(operands) // 2
    results = [Shape(t.dtype, dims) for t in reducer_types(attrs, operands[:count], operands[count:])]
    return tuple_shape(*results) if attrs["to_apply"].root.shape.is_tuple else results[0]


def _reduce(shapes: Shapes, attrs: Attrs) -> Shape:
    count, odd = divmod(len(shapes), 2)
    if odd or not count:
        fail("reduce takes n arrays and n initial values")
    first = need_array(shapes[0])
    for s in shapes[1:count]:
        if need_array(s).dims != first.dims:
            fail(f"reduced arrays differ in shape: {first} and {s}")
    need_dims(attrs["dimensions"], first.rank)
    dims = tuple(n for d, n in enumerate(first.dims) if d not in attrs["dimensions"])
    return infer_reduced_shape(attrs, shapes, dims)


def _sort(shapes: Shapes, attrs: Attrs) -> Shape:
    if not shapes:
        fail("sort needs an operand")
    first = need_array(shapes[0])
    for s in shapes[1:]:
        if need_array(s).dims != first.dims:
            fail(f"sorted arrays differ in shape: {first} and {s}")
    if len(attrs["dimensions"]) != 1:
        fail("sort works on one dimension")
    need_dims(attrs["dimensions"], first.rank)
    body = attrs["to_apply"]
    if len(body.parameters) != 2 * len(shapes):
        fail(f"comparator %{body.name} has {len(body.parameters)} parameters, not {2 * len(shapes)}")
    if not shapes_agree(body.root.shape, Shape(DTYPES["pred"])):
        fail(f"comparator %{body.name} returns {body.root.shape}, not pred[]")
    return tuple_of([s.plain for s in shapes])


def _topk(shapes: Shapes, attrs: Attrs) -> Shape:
    if len(shapes) != 1:
        fail(f"topk takes 1 operand, not {len(shapes)}")
    operand = need_array(shapes[0])
    if not operand.rank or not 0 <= attrs["k"] <= operand.dims[-1]:
        fail(f"cannot take the top {attrs['k']} of {operand}", max(operand.rank - 1, 0))
    dims = (*operand.dims[:-1], attrs["k"])
    return tuple_shape(operand.with_dims(dims), Shape(DTYPES["s32"], dims))


def _scan(shapes: Shapes, attrs: Attrs) -> Shape:
    """Arrays first, then ``num_carries`` carries; the body maps (slices, carries) to (outputs, carries)."""
    carries = attrs.get("num_carries", len(shapes) // 2)
    inputs = shapes[: len(shapes) - carries]
    if not inputs or len(attrs.get("dimensions", ())) != 1:
        fail("scan needs an array and one dimension")
    axis = attrs["dimensions"][0]
    for s in inputs:
        need_dims((axis,), need_array(s).rank)
    body = attrs["to_apply"]
    results: Shapes = body.root.shape.elements if body.root.shape.is_tuple else (body.root.shape,)
    if len(body.parameters) != len(shapes) or len(results) < carries:
        fail(f"%{body.name} has {len(body.parameters)} parameters and {len(results)} results")
    size = inputs[0].dims[axis]
    outputs = [s.with_dims((*s.dims[:axis], size, *s.dims[axis:])) for s in results[: len(results) - carries]]
    return tuple_shape(*outputs, *(s.plain for s in results[len(results) - carries :]))


RULES = {
    "reduce": ShapeRule(_reduce),
    "sort": ShapeRule(_sort),
    "topk": ShapeRule(_topk),
    "scan": ShapeRule(_scan),
}
