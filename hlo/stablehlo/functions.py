"""Functions, blocks and regions of the plain form as computations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from shardc.hlo.errors import Location, UnsupportedError, VerificationError
from shardc.hlo.ir.ir import Computation, Instruction, Metadata, names_of_one
from shardc.hlo.ir.sharding import Sharding, TileSharding
from shardc.hlo.ir.types import tuple_shape
from shardc.hlo.stablehlo.ops import HANDLERS
from shardc.hlo.stablehlo.scope import Op, Scope
from shardc.hlo.stablehlo.tables import Tables

__all__ = ["Converter", "Entry", "free_values"]

_RETURNS = frozenset({"func.return", "return", "stablehlo.return", "sdy.return", "chlo.return"})


@dataclass(frozen=True, slots=True)
class Entry:
    """The converted entry function: its root is always a tuple. ``arguments`` and ``results`` say which of the
    function's arguments and results the parameters and the root's elements are: all but tokens."""

    name: str
    computation: Computation
    arg_names: tuple[str, ...]
    result_names: tuple[str, ...]
    arguments: tuple[int, ...]
    results: tuple[int, ...]


class Converter:
    """Converts one module; functions and equal regions once each."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.functions: Mapping[str, tuple[Any, ...]] = {f[0]: f for f in tables.plain["functions"]}
        #: Whether calls without shardings of their own take those of the function's results.
        self.called_results = True
        self.made: dict[int, tuple[str, ...]] | None = None  # names by first value, where the writer wants them
        self._names: dict[str, int] = {}
        self._called: dict[str, Computation] = {}
        self._open: set[str] = set()  # functions under conversion
        self._regions: dict[Any, Computation] = {}

    @cached_property
    def _used(self) -> frozenset[int]:
        return frozenset(used_values(f[4] for f in self.functions.values()))

    def is_used(self, number: int) -> bool:
        """Whether any op reads value ``number``."""
        return number in self._used

    def unique_name(self, base: str) -> str:
        """``base`` with a number, by order of creation: the same for every reading of a module."""
        number = self._names.get(base, 0) + 1
        self._names[base] = number
        return f"{base}.{number}"

    def block(self, scope: Scope, ops: Iterable[tuple[Any, ...]]) -> tuple[Instruction, ...]:
        """Convert ops in order; returns what the block returns."""
        handlers, values = HANDLERS, scope.values
        for plain in ops:
            name = plain[0]
            if name in _RETURNS:
                return tuple([scope.value(n) for n in plain[1]])
            handler = handlers.get(name)
            op = Op(scope, plain)
            if handler is None:
                raise op.unsupported(fix="`shardc ops` lists what is")
            results = handler(op)
            for number, instruction in enumerate(results, op.first):
                values[number] = instruction
            if self.made is not None:
                self.made[op.first] = tuple(i.name for i in results)
        return ()

    def region_computation(self, outer: Scope, op: Op, region: tuple[Any, ...], kind: str) -> Computation:
        """A region that may use only its arguments and constants (what a reduction or comparator calls)."""
        (block,) = region
        captured = free_values(region)
        key = None if captured else _normal(block)
        found = self._regions.get(key) if key is not None else None
        if found is not None:
            return found

        def copy(scope: Scope, number: int) -> Instruction:
            return copy_constant(scope, outer.value(number), op)

        scope = Scope(self, self.unique_name(kind), place=op.metadata, capture=copy)
        for index, (number, type_) in enumerate(zip(block[0], block[1], strict=True)):
            scope.values[number] = scope.parameter(index, self.tables.shape(type_))
        computation = scope.build(self.root(scope, self.block(scope, block[3])))
        if key is not None:
            self._regions[key] = computation
        return computation

    def closure(
        self, outer: Scope, op: Op, region: tuple[Any, ...], kind: str
    ) -> tuple[Computation, tuple[Instruction, ...]]:
        """A region as a computation, and what it is called with: the op's operands, then values from outside."""
        (block,) = region
        captured = tuple(n for n in free_values(region) if outer.value(n).opcode != "constant")
        operands = (*op.operands[: len(block[0])], *(outer.value(n) for n in captured))

        def copy(scope: Scope, number: int) -> Instruction:
            return copy_constant(scope, outer.value(number), op)

        scope = Scope(self, self.unique_name(kind), place=op.metadata, capture=copy)
        for index, (number, value) in enumerate(zip((*block[0], *captured), operands, strict=True)):
            scope.values[number] = scope.parameter(index, value.shape.plain)
        return scope.build(self.root(scope, self.block(scope, block[3]))), operands

    def root(self, scope: Scope, values: tuple[Instruction, ...]) -> Instruction:
        """One value, or a tuple of them."""
        if len(values) == 1:
            return values[0]
        return scope.emit("tuple", tuple_shape(*(v.shape for v in values)), values)

    def called(self, name: str, op: Op | None) -> Computation:
        """A function as a computation; its ops without a source take the first caller's, if there is one."""
        if name not in self._called:
            place = op.place if op is not None else Location(self.tables.file)
            if name not in self.functions or self.functions[name][1] is None:
                raise UnsupportedError(f"{op.name if op else 'call'} of unknown function @{name}", where=place)
            if name in self._open:
                raise VerificationError(
                    f"function @{name} calls itself", where=place, fix="programs have loops, not recursion"
                )
            self._open.add(name)
            self._called[name] = self._function(self.functions[name], op.metadata if op is not None else None)
            self._open.discard(name)
        return self._called[name]

    def _function(self, plain: tuple[Any, ...], place: Metadata | None) -> Computation:
        name, _, argument_attrs, _, region = plain
        block = self._single_block(name, region)
        scope = Scope(self, self.unique_name(name), place=place)
        for index, number in enumerate(block[0]):
            sharding = self.value_sharding(argument_attrs[index])
            shape = self.tables.shape(block[1][index])
            scope.values[number] = scope.parameter(index, shape, sharding=sharding, metadata=place)
        values = self.block(scope, block[3])
        return scope.build(self.root(scope, values))

    def result_shardings(self, name: str) -> tuple[Sharding | TileSharding | None, ...]:
        """What a function says of its results."""
        return tuple(self.value_sharding(a) for a in self.functions[name][3])

    def others(self, entry: str) -> tuple[Computation, ...]:
        """The functions that the entry does not call: public ones, and what they call."""
        made = []
        for name, plain in self.functions.items():
            if plain[1] and name != entry and name not in self._called:
                made.append(self.called(name, None))
        return tuple(made)

    def entry(self, name: str) -> Entry:
        """The entry computation. Tokens at its border only order effects; they begin and end inside."""
        _, _, argument_attrs, result_attrs, region = self.functions[name]
        block = self._single_block(name, region)
        scope = Scope(self, name)
        names: list[str] = []
        arguments: list[int] = []
        for position, (number, type_, location) in enumerate(zip(*block[:3], strict=True)):
            shape = self.tables.shape(type_)
            if shape.is_token:
                scope.values[number] = scope.emit("after-all", shape)
                continue
            attrs = self.tables.attributes(argument_attrs[position])
            label = str(attrs.get("jax.arg_info", "")) or self._place_name(location) or self._passed_on(number, block)
            scope.values[number] = scope.parameter(
                len(names),
                shape,
                sharding=self.value_sharding(argument_attrs[position]),
                metadata=self._named(label, location),
            )
            names.append(label)
            arguments.append(position)
        values = self.block(scope, block[3])
        results = tuple(k for k, v in enumerate(values) if not v.shape.is_token)
        kept = tuple(values[k] for k in results)
        shardings = tuple(self.value_sharding(result_attrs[k]) for k in results)
        root = scope.emit(
            "tuple",
            tuple_shape(*(v.shape for v in kept)),
            kept,
            sharding=shardings if any(s is not None for s in shardings) else None,
        )
        labels = tuple(str(self.tables.attributes(result_attrs[k]).get("jax.result_info", "")) for k in results)
        return Entry(name, scope.build(root), names_of_one(names), labels, tuple(arguments), results)

    def _place_name(self, location: int) -> str:
        return str(self.tables.plain["locations"][location][0])

    def _passed_on(self, number: int, block: tuple[Any, ...]) -> str:
        """The name that an argument has in the function it is passed to: jax.export wraps the function so."""
        for name, operands, _, _, attributes, _, _ in block[3]:
            if name == "func.call" and number in operands:
                callee = self.functions.get(self.tables.attribute(attributes["callee"]))
                if callee is not None and callee[4]:
                    return self._place_name(callee[4][0][2][operands.index(number)])
        return ""

    def _named(self, label: str, location: int) -> Metadata | None:
        """The place of an argument, under the name that people know it by."""
        place = self.tables.metadata(location)
        if place is None or not place.source_file:
            return Metadata(label) if label else None
        return replace(place, op_name=label)

    def _single_block(self, name: str, region: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(region) != 1:
            what = "has no body" if not region else "has several blocks"
            raise UnsupportedError(f"function @{name} {what}", where=Location(self.tables.file))
        block: tuple[Any, ...] = region[0]
        return block

    def value_sharding(self, attributes: Mapping[str, int]) -> Sharding | TileSharding | None:
        """What is said about a function's argument or result."""
        if "sdy.sharding" in attributes:
            found: Sharding = self.tables.attribute(attributes["sdy.sharding"])
            return found
        if "mhlo.sharding" in attributes:
            text = self.tables.attribute(attributes["mhlo.sharding"])
            return self.written_sharding(text, 1, Location(self.tables.file))[0]
        return None

    def written_sharding(self, text: str, count: int, place: Location) -> tuple[Sharding | TileSharding | None, ...]:
        """A GSPMD sharding string, one entry per result."""
        from shardc.hlo.text.notations.tiles import parse_sharding

        found = parse_sharding(text, place)
        if isinstance(found, tuple):
            return found if len(found) == count else found[:1] * count
        return (found,) * count


def constrain(
    scope: Scope, value: Instruction, sharding: Sharding | TileSharding | None, place: Metadata | None
) -> Instruction:
    """``value`` with a sharding constraint, or itself without one."""
    if sharding is None:
        return value
    attrs = {"custom_call_target": "Sharding"}
    return scope.emit("custom-call", value.shape, (value,), attrs, metadata=place, sharding=sharding)


def copy_constant(scope: Scope, value: Instruction, op: Op) -> Instruction:
    """A constant (or an element-wise spread of one) from outside, again inside a computation."""
    if value.opcode == "constant":
        return scope.emit("constant", value.shape, (), value.attrs, metadata=value.metadata)
    if value.opcode in ("broadcast", "convert", "reshape"):
        operands = [copy_constant(scope, o, op) for o in value.operands]
        return scope.emit(value.opcode, value.shape, operands, value.attrs, metadata=value.metadata)
    raise op.unsupported(
        f"its region uses %{value.name} from outside, which is not a constant",
        fix="pass the value as an operand of the surrounding loop or branch",
    )


def free_values(region: tuple[Any, ...]) -> tuple[int, ...]:
    """Values that a region uses but does not define, in order of first use."""
    defined: set[int] = set()
    free: dict[int, None] = {}

    def visit(region: tuple[Any, ...]) -> None:
        for arguments, _, _, ops in region:
            defined.update(arguments)
            for _, operands, first, types, _, regions, _ in ops:
                for n in operands:
                    if n not in defined:
                        free[n] = None
                for r in regions:
                    visit(r)
                defined.update(range(first, first + len(types)))

    visit(region)
    return tuple(free)


def used_values(regions: Iterable[tuple[Any, ...]]) -> Iterator[int]:
    """The operands of all ops in regions, and in regions inside them."""
    for region in regions:
        for _, _, _, ops in region:
            for _, operands, _, _, _, inner, _ in ops:
                yield from operands
                yield from used_values(inner)


def _normal(block: tuple[Any, ...]) -> Any:
    """A block as a key: values renumbered from its first one, locations left out."""
    base = block[0][0] if block[0] else 0

    def op_key(op: tuple[Any, ...]) -> Any:
        name, operands, first, types, attributes, regions, _ = op
        inner = tuple(tuple(block_key(b) for b in r) for r in regions)
        return (name, tuple([n - base for n in operands]), first - base, types, tuple(attributes.items()), inner)

    def block_key(b: tuple[Any, ...]) -> Any:
        return (tuple(n - base for n in b[0]), b[1], tuple([op_key(o) for o in b[3]]))

    return block_key(block)
