"""The entry function of a module as a computation, and the public functions beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from shardc.hlo.ir.host_memory.memory_kinds import PINNED_HOST, annotate, is_host, memory_kind_of, on_host
from shardc.hlo.ir.ir import Computation, Instruction, Metadata, names_of_one
from shardc.hlo.ir.types import tuple_shape
from shardc.hlo.stablehlo.converter import ConversionScope, Converter
from shardc.hlo.stablehlo.tables import Block, Tables

__all__ = ["EntryFunction", "convert_entry", "convert_others"]

#: What an argument or a result says of its memory.
_MEMORY_KIND = "mhlo.memory_kind"


@dataclass(frozen=True, slots=True)
class EntryFunction:
    """The converted entry function: its root is always a tuple. ``arguments`` and ``results`` say which of the
    function's arguments and results the parameters and the root's elements are: all but tokens."""

    name: str
    computation: Computation
    arg_names: tuple[str, ...]
    result_names: tuple[str, ...]
    arguments: tuple[int, ...]
    results: tuple[int, ...]


def convert_others(converter: Converter, entry: str) -> tuple[Computation, ...]:
    """The functions that the entry does not call: public ones, and what they call."""
    return tuple(
        converter.convert_function(name, None)
        for name, plain in converter.functions.items()
        if plain[1] and name != entry and not converter.is_converted(name)
    )


def convert_entry(converter: Converter, name: str) -> EntryFunction:
    """The entry computation. Tokens at its border only order effects; they begin and end inside."""
    tables = converter.tables
    _, _, argument_attrs, result_attrs, region = converter.functions[name]
    block = converter.single_block(name, region)
    scope = ConversionScope(converter, name)
    names: list[str] = []
    arguments: list[int] = []
    for position, (number, type_, location) in enumerate(zip(*block[:3], strict=True)):
        shape = tables.shape(type_)
        if shape.is_token:
            scope.values[number] = scope.emit("after-all", shape)
            continue
        attrs = tables.attributes(argument_attrs[position])
        if attrs.get(_MEMORY_KIND) == PINNED_HOST:
            shape = on_host(shape)
        label = str(attrs.get("jax.arg_info", "")) or _location_name(tables, location)
        label = label or _callee_name(converter, number, block)
        scope.values[number] = scope.parameter(
            len(names),
            shape,
            sharding=converter.border_sharding(argument_attrs[position]),
            metadata=_label_location(tables, label, location),
        )
        names.append(label)
        arguments.append(position)
    values = converter.convert_block(scope, block[3])
    results = tuple(k for k, v in enumerate(values) if not v.shape.is_token)
    outputs = tuple(_place_result(scope, values[k], tables.attributes(result_attrs[k])) for k in results)
    shardings = tuple(converter.border_sharding(result_attrs[k]) for k in results)
    root = scope.emit(
        "tuple",
        tuple_shape(*(v.shape for v in outputs)),
        outputs,
        sharding=shardings if any(s is not None for s in shardings) else None,
    )
    labels = tuple(str(tables.attributes(result_attrs[k]).get("jax.result_info", "")) for k in results)
    return EntryFunction(name, scope.build(root), names_of_one(names), labels, tuple(arguments), results)


def _place_result(scope: ConversionScope, value: Instruction, attrs: Mapping[str, Any]) -> Instruction:
    """A result in the memory that the function says it is in; JAX mostly has a call for that as well."""
    if attrs.get(_MEMORY_KIND) != PINNED_HOST or memory_kind_of(value) == PINNED_HOST or is_host(value.shape):
        return value
    call = annotate(value, PINNED_HOST)
    scope.instructions.append(call)
    return call


def _location_name(tables: Tables, location: int) -> str:
    return str(tables.plain["locations"][location][0])


def _callee_name(converter: Converter, number: int, block: Block) -> str:
    """The name that an argument has in the function it is passed to: jax.export wraps the function so."""
    for name, operands, _, _, attributes, _, _ in block[3]:
        if name == "func.call" and number in operands:
            callee = converter.functions.get(converter.tables.attribute(attributes["callee"]))
            if callee is not None and callee[4]:
                return _location_name(converter.tables, callee[4][0][2][operands.index(number)])
    return ""


def _label_location(tables: Tables, label: str, location: int) -> Metadata | None:
    """The place of an argument, under the name that people know it by."""
    place = tables.metadata(location)
    if place is None or not place.source_file:
        return Metadata(label) if label else None
    return replace(place, op_name=label)
