"""scan: a loop that takes slices of its arrays, runs the body, and writes what it gives into the results."""

from __future__ import annotations

from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.operations import Operations
from shardc.hlo.ir.types import Shape, array_shape

__all__ = ["expand_scan"]


def expand_scan(i: Instruction) -> Computation:
    """The loop carries a counter, the arrays, the carries and the outputs so far."""
    p = Operations(i)
    carries = i.attrs.get("num_carries", len(i.operands) // 2)
    cut = len(p.parameters) - carries
    arrays, start = p.parameters[:cut], p.parameters[cut:]
    shapes = i.shape.elements if i.shape.is_tuple else (i.shape,)
    outputs = [p.full(0, s.plain) for s in shapes[: len(shapes) - carries]]
    state = p.op("tuple", p.full(0, array_shape("s32")), *arrays, *start, *outputs)
    size = arrays[0].shape.dims[i.attrs["dimensions"][0]]
    loop = p.op("while", state, condition=_condition(state.shape, size), body=_body(i, state.shape, cut, carries, size))
    first = 1 + cut
    results = [*range(first + carries, len(state.operands)), *range(first, first + carries)]
    parts = [p.element(loop, k) for k in results]
    return p.b.build(p.op("tuple", *parts) if i.shape.is_tuple else parts[0])


def _condition(state: Shape, size: int) -> Computation:
    b = Builder("scan_condition")
    counter = b.add("get-tuple-element", b.parameter(state), index=0)
    return b.build(b.add("compare", counter, b.constant(size, "s32"), direction="LT"))


def _body(i: Instruction, state: Shape, cut: int, carries: int, size: int) -> Computation:
    b = Builder("scan_body", metadata=i.metadata, origin=i.origin)
    axis = i.attrs["dimensions"][0]
    parameter = b.parameter(state)
    counter, *values = (b.add("get-tuple-element", parameter, index=k) for k in range(len(state.elements)))
    at = counter
    if i.attrs.get("is_reverse", False):
        at = b.add("subtract", b.constant(size - 1, "s32"), counter)
    zero = b.constant(0, "s32")

    def starts(rank: int) -> list[Instruction]:
        return [at if d == axis else zero for d in range(rank)]

    slices = []
    for x in values[:cut]:
        sizes = tuple(1 if d == axis else n for d, n in enumerate(x.shape.dims))
        part = b.add("dynamic-slice", x, *starts(x.shape.rank), dynamic_slice_sizes=sizes)
        dims = (*x.shape.dims[:axis], *x.shape.dims[axis + 1 :])
        slices.append(b.add("reshape", part, shape=x.shape.plain.with_dims(dims)))
    body: Computation = i.attrs["to_apply"]
    carry = values[cut : cut + carries]
    result = b.add("call", *slices, *carry, shape=body.root.shape, to_apply=body)
    several = body.root.shape.is_tuple
    parts = (
        [b.add("get-tuple-element", result, index=k) for k in range(len(body.root.shape.elements))]
        if several
        else [result]
    )
    new = []
    for whole, part in zip(values[cut + carries :], parts, strict=False):
        dims = (*part.shape.dims[:axis], 1, *part.shape.dims[axis:])
        row = b.add("reshape", part, shape=part.shape.plain.with_dims(dims))
        new.append(b.add("dynamic-update-slice", whole, row, *starts(whole.shape.rank)))
    following = b.add("add", counter, b.constant(1, "s32"))
    return b.build(b.add("tuple", following, *values[:cut], *parts[len(parts) - carries :], *new))
