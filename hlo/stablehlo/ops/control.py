"""Loops, branches and calls.

HLO's computations see only their parameters. A region of a StableHLO loop or branch may use any value in sight:
constants are copied in, everything else becomes an extra element of the tuple that is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.types import Shape, tuple_shape
from shardc.hlo.stablehlo.converter import ConversionScope, Handler, MlirOp, copy_constant, free_values
from shardc.hlo.stablehlo.ops.custom_call import convert_custom_call
from shardc.hlo.stablehlo.tables import Region

__all__ = ["HANDLERS"]


def _captured_values(op: MlirOp, regions: Sequence[Region]) -> tuple[int, ...]:
    """Values from outside that the regions need passed in: all but constants."""
    numbers = dict.fromkeys(n for r in regions for n in free_values(r))
    return tuple(n for n in numbers if op.scope.value(n).opcode != "constant")


def _inside(op: MlirOp, name: str, numbers: Sequence[int], shapes: Sequence[Shape]) -> ConversionScope:
    """A computation with one tuple parameter; element i is value ``numbers[i]``, taken out at its first use."""
    position = {n: i for i, n in enumerate(numbers)}

    def capture(scope: ConversionScope, number: int) -> Instruction:
        if number in position:
            index = position[number]
            return scope.emit("get-tuple-element", shapes[index], (whole,), {"index": index}, metadata=op.metadata)
        return copy_constant(scope, op.scope.value(number), op)

    converter = op.scope.converter
    scope = ConversionScope(converter, converter.unique_name(name), place=op.metadata, capture=capture)
    whole = scope.parameter(0, tuple_shape(*shapes), metadata=op.metadata)
    return scope


def _while(op: MlirOp) -> Sequence[Instruction]:
    captured = _captured_values(op, op.regions)
    extra = [op.scope.value(n) for n in captured]
    state = op.emit_tuple([*op.operands, *extra])
    shapes = state.shape.elements
    computations = []
    for region, name in zip(op.regions, ("condition", "body"), strict=True):
        (block,) = region
        numbers = (*block[0], *captured)
        scope = _inside(op, name, numbers, shapes)
        values = op.scope.converter.convert_block(scope, block[3])
        if name == "body":
            carried = [scope.value(n) for n in captured]
            root = scope.emit("tuple", tuple_shape(*shapes), (*values, *carried), metadata=op.metadata)
        else:
            (root,) = values
        computations.append(scope.build(root))
    condition, body = computations
    given = op.shardings
    sharding = (*given, *(None for _ in extra)) if any(s is not None for s in given) else None
    whole = op.scope.emit(
        "while",
        state.shape,
        (state,),
        {"condition": condition, "body": body},
        metadata=op.metadata,
        sharding=sharding,
    )
    return op.emit_elements(whole)


def _branch(op: MlirOp, region: Region, name: str) -> tuple[Computation, Instruction]:
    """A branch as a computation, and the tuple of what it uses."""
    captured = _captured_values(op, [region])
    values = [op.scope.value(n) for n in captured]
    scope = _inside(op, name, captured, [v.shape for v in values])
    (block,) = region
    results = op.scope.converter.convert_block(scope, block[3])
    root = scope.emit("tuple", tuple_shape(*op.shapes), results, metadata=op.metadata)
    return scope.build(root), op.emit_tuple(values)


def _conditional(op: MlirOp, names: Sequence[str], attrs: Callable[..., dict[str, Any]]) -> Sequence[Instruction]:
    made = [_branch(op, region, name) for region, name in zip(op.regions, names, strict=True)]
    computations = tuple(c for c, _ in made)
    arguments = [a for _, a in made]
    whole = op.emit("conditional", tuple_shape(*op.shapes), op.operands[0], *arguments, **attrs(*computations))
    return op.emit_elements(whole)


def _case(op: MlirOp) -> Sequence[Instruction]:
    names = [f"branch_{i}" for i in range(len(op.regions))]
    return _conditional(op, names, lambda *branches: {"branch_computations": branches})


def _if(op: MlirOp) -> Sequence[Instruction]:
    return _conditional(
        op,
        ("branch_true", "branch_false"),
        lambda yes, no: {"true_computation": yes, "false_computation": no},
    )


def call_function(op: MlirOp, name: str) -> Sequence[Instruction]:
    """Call a function of the module; what the function says of its results' shardings holds for the call's."""
    callee = op.scope.converter.convert_function(name, op)
    given = op.shardings
    if op.scope.converter.inherit_results and all(s is None for s in given):
        given = op.scope.converter.result_shardings(name)
    if len(op.shapes) != 1:
        return op.emit_elements(op.emit("call", callee.root.shape, *op.operands, to_apply=callee), given)
    attrs = {"to_apply": callee}
    return (op.scope.emit("call", op.shapes[0], op.operands, attrs, metadata=op.metadata, sharding=given[0]),)


def _call(op: MlirOp) -> Sequence[Instruction]:
    return call_function(op, op.get("callee"))


def _composite(op: MlirOp) -> Sequence[Instruction]:
    """What a composite is composed of; one of CHLO's operations, as portable modules have them, is that operation."""
    name = op.get("name")
    handler = op.scope.converter.handler(name) if name.startswith("chlo.") else None
    if handler is None:
        return call_function(op, op.get("decomposition"))
    return handler(op.with_attributes(name, op.get("composite_attributes", {})))


def _barrier(op: MlirOp) -> Sequence[Instruction]:
    if len(op.shapes) == 1:
        return op.emit_result("optimization-barrier", *op.operands)
    return op.emit_results("optimization-barrier", op.emit_tuple(op.operands))


def _tuple(op: MlirOp) -> Sequence[Instruction]:
    return op.emit_result("tuple", *op.operands)


def _get_tuple_element(op: MlirOp) -> Sequence[Instruction]:
    return op.emit_result("get-tuple-element", *op.operands, index=int(op.get("index")))


def _after_all(op: MlirOp) -> Sequence[Instruction]:
    return op.emit_result("after-all", *op.operands)


HANDLERS: Mapping[str, Handler] = {
    "stablehlo.while": _while,
    "stablehlo.case": _case,
    "stablehlo.if": _if,
    "func.call": _call,
    "call": _call,
    "stablehlo.composite": _composite,
    "stablehlo.optimization_barrier": _barrier,
    "stablehlo.tuple": _tuple,
    "stablehlo.get_tuple_element": _get_tuple_element,
    "stablehlo.after_all": _after_all,
    "stablehlo.create_token": _after_all,
    "stablehlo.custom_call": convert_custom_call,
}
