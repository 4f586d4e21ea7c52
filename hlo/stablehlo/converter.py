"""From the plain form of MLIR to computations: the values in sight, and the means to emit HLO instructions.

A `Converter` converts one module. Each computation under construction is a `ConversionScope`; a handler gets an
`MlirOp`, emits instructions into its scope, and returns one per result. Which handlers there are, the converter is
told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from shardc.hlo.errors import Location, UnsupportedError, VerificationError
from shardc.hlo.ir.ir import NO_ATTRS, Computation, Instruction, Metadata
from shardc.hlo.ir.sharding import AnySharding, Sharding, TileSharding
from shardc.hlo.ir.types import DType, Shape, array_shape, tuple_shape
from shardc.hlo.stablehlo.tables import Block, PlainFunction, PlainOp, Region, Tables, literal_ints
from shardc.hlo.text.notations.tiles import parse_sharding

__all__ = ["ConversionScope", "Converter", "Handler", "MlirOp", "constrain", "copy_constant", "free_values"]

_RETURNS = frozenset({"func.return", "return", "stablehlo.return", "sdy.return", "chlo.return"})


class Converter:
    """Converts one module, op by op with the handlers; functions and equal regions once each.

    With ``inherit_results`` a call without shardings of its own takes those of the function's results. ``op_names``
    collects the names of the instructions that each op became, by the op's first value.
    """

    def __init__(
        self,
        tables: Tables,
        handlers: Mapping[str, Handler],
        *,
        inherit_results: bool = True,
        op_names: dict[int, tuple[str, ...]] | None = None,
    ) -> None:
        self.tables = tables
        self.functions: Mapping[str, PlainFunction] = {f[0]: f for f in tables.plain["functions"]}
        self.inherit_results = inherit_results
        self.op_names = op_names
        self._handlers = handlers
        self._names: dict[str, int] = {}
        self._converted: dict[str, Computation] = {}
        self._open: set[str] = set()  # functions under conversion
        self._regions: dict[Any, Computation] = {}

    @cached_property
    def _used(self) -> frozenset[int]:
        return frozenset(_used_values(f[4] for f in self.functions.values()))

    def is_used(self, number: int) -> bool:
        """Whether any op reads value ``number``."""
        return number in self._used

    def handler(self, name: str) -> Handler | None:
        """What converts ops of that name, if anything does."""
        return self._handlers.get(name)

    def unique_name(self, base: str) -> str:
        """``base`` with a number, by order of creation: the same for every reading of a module."""
        number = self._names.get(base, 0) + 1
        self._names[base] = number
        return f"{base}.{number}"

    def convert_block(self, scope: ConversionScope, ops: Iterable[PlainOp]) -> tuple[Instruction, ...]:
        """Convert ops in order; returns what the block returns."""
        handlers, values = self._handlers, scope.values
        for plain in ops:
            name = plain[0]
            if name in _RETURNS:
                return tuple([scope.value(n) for n in plain[1]])
            handler = handlers.get(name)
            op = MlirOp(scope, plain)
            if handler is None:
                raise op.unsupported(fix="`shardc ops` lists the supported operations")
            results = handler(op)
            for number, instruction in enumerate(results, op.first):
                values[number] = instruction
            if self.op_names is not None:
                self.op_names[op.first] = tuple(i.name for i in results)
        return ()

    def convert_region(self, outer: ConversionScope, op: MlirOp, region: Region, kind: str) -> Computation:
        """A region that may use only its arguments and constants (what a reduction or comparator calls)."""
        (block,) = region
        captured = free_values(region)
        key = None if captured else _normal(block)
        found = self._regions.get(key) if key is not None else None
        if found is not None:
            return found

        def copy(scope: ConversionScope, number: int) -> Instruction:
            return copy_constant(scope, outer.value(number), op)

        scope = ConversionScope(self, self.unique_name(kind), place=op.metadata, capture=copy)
        for index, (number, type_) in enumerate(zip(block[0], block[1], strict=True)):
            scope.values[number] = scope.parameter(index, self.tables.shape(type_))
        computation = scope.build(self._join(scope, self.convert_block(scope, block[3])))
        if key is not None:
            self._regions[key] = computation
        return computation

    def convert_closure(
        self, outer: ConversionScope, op: MlirOp, region: Region, kind: str
    ) -> tuple[Computation, tuple[Instruction, ...]]:
        """A region as a computation, and what it is called with: the op's operands, then values from outside."""
        (block,) = region
        captured = tuple(n for n in free_values(region) if outer.value(n).opcode != "constant")
        operands = (*op.operands[: len(block[0])], *(outer.value(n) for n in captured))

        def copy(scope: ConversionScope, number: int) -> Instruction:
            return copy_constant(scope, outer.value(number), op)

        scope = ConversionScope(self, self.unique_name(kind), place=op.metadata, capture=copy)
        for index, (number, value) in enumerate(zip((*block[0], *captured), operands, strict=True)):
            scope.values[number] = scope.parameter(index, value.shape.plain)
        return scope.build(self._join(scope, self.convert_block(scope, block[3]))), operands

    def _join(self, scope: ConversionScope, values: tuple[Instruction, ...]) -> Instruction:
        """One value, or a tuple of them."""
        if len(values) == 1:
            return values[0]
        return scope.emit("tuple", tuple_shape(*(v.shape for v in values)), values)

    def convert_function(self, name: str, op: MlirOp | None) -> Computation:
        """A function as a computation; its ops without a source take the first caller's, if there is one."""
        if name not in self._converted:
            place = op.place if op is not None else Location(self.tables.file)
            if name not in self.functions or self.functions[name][1] is None:
                raise UnsupportedError(f"{op.name if op else 'call'} of unknown function @{name}", where=place)
            if name in self._open:
                raise VerificationError(
                    f"function @{name} calls itself", where=place, fix="replace the recursion by a loop"
                )
            self._open.add(name)
            self._converted[name] = self._convert_body(self.functions[name], op.metadata if op is not None else None)
            self._open.discard(name)
        return self._converted[name]

    def _convert_body(self, plain: PlainFunction, place: Metadata | None) -> Computation:
        name, _, argument_attrs, _, region = plain
        block = self.single_block(name, region)
        scope = ConversionScope(self, self.unique_name(name), place=place)
        for index, number in enumerate(block[0]):
            sharding = self.border_sharding(argument_attrs[index])
            shape = self.tables.shape(block[1][index])
            scope.values[number] = scope.parameter(index, shape, sharding=sharding, metadata=place)
        values = self.convert_block(scope, block[3])
        return scope.build(self._join(scope, values))

    def is_converted(self, name: str) -> bool:
        """Whether function ``name`` is a computation by now."""
        return name in self._converted

    def single_block(self, name: str, region: Region) -> Block:
        """The one block that the body of function ``name`` has; `UnsupportedError` where it has none or several."""
        if len(region) != 1:
            what = "has no body" if not region else "has several blocks"
            raise UnsupportedError(f"function @{name} {what}", where=Location(self.tables.file))
        return region[0]

    def result_shardings(self, name: str) -> tuple[Sharding | TileSharding | None, ...]:
        """What a function says of its results."""
        return tuple(self.border_sharding(a) for a in self.functions[name][3])

    def border_sharding(self, attributes: Mapping[str, int]) -> Sharding | TileSharding | None:
        """What is said about a function's argument or result."""
        if "sdy.sharding" in attributes:
            found: Sharding = self.tables.attribute(attributes["sdy.sharding"])
            return found
        if "mhlo.sharding" in attributes:
            text = self.tables.attribute(attributes["mhlo.sharding"])
            return self.read_sharding(text, 1, Location(self.tables.file))[0]
        return None

    def read_sharding(self, text: str, count: int, place: Location) -> tuple[Sharding | TileSharding | None, ...]:
        """A GSPMD sharding string, one entry per result."""
        found = parse_sharding(text, place)
        if isinstance(found, tuple):
            return found if len(found) == count else found[:1] * count
        return (found,) * count


class ConversionScope:
    """One computation under construction.

    ``values`` maps value numbers to instructions. A number it lacks is looked up in ``capture``, which knows how
    this computation reaches values from outside (constants are copied; loops and branches pass the rest in).
    """

    __slots__ = ("capture", "converter", "instructions", "name", "place", "values")

    def __init__(
        self,
        converter: Converter,
        name: str,
        *,
        place: Metadata | None = None,
        capture: Callable[[ConversionScope, int], Instruction] | None = None,
    ) -> None:
        self.converter = converter
        self.name = name
        self.place = place
        self.capture = capture
        self.values: dict[int, Instruction] = {}
        self.instructions: list[Instruction] = []

    def value(self, number: int) -> Instruction:
        found = self.values.get(number)
        if found is None:
            assert self.capture is not None, f"value {number} is not visible in {self.name}"
            found = self.values[number] = self.capture(self, number)
        return found

    def emit(
        self,
        opcode: str,
        shape: Shape,
        operands: Iterable[Instruction] = (),
        attrs: Mapping[str, Any] = NO_ATTRS,
        *,
        metadata: Metadata | None = None,
        sharding: AnySharding = None,
    ) -> Instruction:
        """Append an instruction with a name that is unique in the module."""
        name = self.converter.unique_name(opcode)
        out = Instruction(opcode, shape, operands, attrs, name=name, metadata=metadata, sharding=sharding)
        self.instructions.append(out)
        return out

    def parameter(self, index: int, shape: Shape, **fields: Any) -> Instruction:
        return self.emit("parameter", shape, (), {"index": index}, **fields)

    def build(self, root: Instruction) -> Computation:
        return Computation(self.name, self.instructions, root)


class MlirOp:
    """One MLIR op with its operands already converted; what a handler works with.

    ``shapes`` are the result shapes, ``shardings`` one entry per result (None where nothing is said).
    """

    __slots__ = ("first", "metadata", "name", "operands", "raw", "regions", "scope", "shapes", "tables")

    def __init__(self, scope: ConversionScope, plain: PlainOp) -> None:
        self.name, numbers, self.first, types, self.raw, self.regions, location = plain
        self.scope = scope
        self.tables: Tables = scope.converter.tables
        self.operands = tuple([scope.value(n) for n in numbers])
        self.shapes = self.tables.shapes(types)
        self.metadata = self.tables.metadata(location, scope.place)

    def get(self, name: str, default: Any = None) -> Any:
        """Attribute ``name`` (see `Tables.attribute`)."""
        index = self.raw.get(name)
        return default if index is None else self.tables.attribute(index)

    def ints(self, name: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        """A list of integers, whether written as array or as constant."""
        value = self.get(name)
        return default if value is None else literal_ints(value)

    @property
    def place(self) -> Location:
        m = self.metadata
        if m is None or not m.source_file:
            return Location(self.tables.file)
        return Location(m.source_file, m.source_line, m.source_column)

    @property
    def shardings(self) -> tuple[Sharding | TileSharding | None, ...]:
        if "sdy.sharding" in self.raw:
            value = self.get("sdy.sharding")
            if not self.shapes:
                return ()  # it says where the op runs
            return value if isinstance(value, tuple) else (value,) * len(self.shapes)
        if "mhlo.sharding" in self.raw:
            return self.scope.converter.read_sharding(self.get("mhlo.sharding"), len(self.shapes), self.place)
        return (None,) * len(self.shapes)

    def with_attributes(self, name: str, attributes: Mapping[str, Any]) -> MlirOp:
        """The same op under another name, with other ``attributes``; what is said of shardings stays."""
        return _NamedOp(self, name, attributes)

    def unsupported(self, why: str = "", fix: str | None = None) -> UnsupportedError:
        return UnsupportedError(
            f"{self.name}" + (f": {why}" if why else " is not supported"), where=self.place, fix=fix
        )

    def emit(self, opcode: str, shape: Shape, *operands: Instruction, **attrs: Any) -> Instruction:
        """An instruction on the way to the result."""
        return self.scope.emit(opcode, shape, operands, attrs or NO_ATTRS, metadata=self.metadata)

    def emit_result(self, opcode: str, *operands: Instruction, **attrs: Any) -> tuple[Instruction]:
        """The instruction that is the op's one result."""
        sharding = self.shardings[0] if "sdy.sharding" in self.raw or "mhlo.sharding" in self.raw else None
        if "mhlo.frontend_attributes" in self.raw:
            attrs = {**attrs, **self.frontend_attributes()}
        given = self.with_rule(attrs)
        out = self.scope.emit(opcode, self.shapes[0], operands, given, metadata=self.metadata, sharding=sharding)
        return (out,)

    def with_rule(self, attrs: Mapping[str, Any]) -> Mapping[str, Any]:
        """``attrs`` with the user's own sharding rule for the op, under the name that it has in HLO."""
        if "sdy.sharding_rule" not in self.raw or "frontend_attributes" in attrs:
            return attrs or NO_ATTRS
        rule = ("xla.sdy.sharding_rule", str(self.get("sdy.sharding_rule")))
        return {**attrs, "frontend_attributes": (rule,)}

    def frontend_attributes(self) -> dict[str, Any]:
        """What users hang on an op for tools further on (``set_xla_metadata``); Shardy's own is read elsewhere."""
        given = self.get("mhlo.frontend_attributes") or {}
        kept = tuple((name, str(value)) for name, value in given.items() if not name.startswith("xla.sdy."))
        return {"frontend_attributes": kept} if kept else {}

    def emit_results(self, opcode: str, *operands: Instruction, **attrs: Any) -> tuple[Instruction, ...]:
        """Like `emit_result`, also for several results: a tuple and its elements."""
        if len(self.shapes) == 1:
            return self.emit_result(opcode, *operands, **attrs)
        given = self.with_rule(attrs)
        whole = self.scope.emit(opcode, tuple_shape(*self.shapes), operands, given, metadata=self.metadata)
        return self.emit_elements(whole)

    def emit_elements(
        self, whole: Instruction, shardings: Sequence[Sharding | TileSharding | None] | None = None
    ) -> tuple[Instruction, ...]:
        """The op's results as elements of a tuple-shaped instruction (which may have more)."""
        given = self.shardings if shardings is None else shardings
        return tuple(
            self.scope.emit(
                "get-tuple-element", shape, (whole,), {"index": i}, metadata=self.metadata, sharding=sharding
            )
            for i, (shape, sharding) in enumerate(zip(self.shapes, given, strict=True))
        )

    def emit_tuple(self, values: Sequence[Instruction]) -> Instruction:
        return self.emit("tuple", tuple_shape(*(v.shape for v in values)), *values)

    def broadcast_scalar(self, value: Instruction, dims: tuple[int, ...]) -> Instruction:
        """``value`` itself, or the scalar spread over ``dims``."""
        if value.shape.dims == dims:
            return value
        return self.emit("broadcast", array_shape(value.shape.dtype, *dims), value, dimensions=())

    def convert_region(self, index: int, kind: str = "region") -> Computation:
        """Region ``index`` as a computation over its own arguments (constants from outside are copied in)."""
        return self.scope.converter.convert_region(self.scope, self, self.regions[index], kind)

    def convert_closure(self, index: int, kind: str) -> tuple[Computation, tuple[Instruction, ...]]:
        """Region ``index`` as a computation of its arguments and of what it uses from outside; and those values,
        after the op's own operands."""
        return self.scope.converter.convert_closure(self.scope, self, self.regions[index], kind)

    @property
    def dtype(self) -> DType:
        return self.shapes[0].dtype


class _NamedOp(MlirOp):
    """An op that stands for another one."""

    __slots__ = ("attributes",)

    def __init__(self, op: MlirOp, name: str, attributes: Mapping[str, Any]) -> None:
        for slot in MlirOp.__slots__:
            setattr(self, slot, getattr(op, slot))
        self.name = name
        self.attributes = attributes

    def get(self, name: str, default: Any = None) -> Any:
        return self.attributes[name] if name in self.attributes else super().get(name, default)


#: Converts one op: emits instructions, returns one per result.
Handler = Callable[[MlirOp], Sequence[Instruction]]


def constrain(
    scope: ConversionScope, value: Instruction, sharding: Sharding | TileSharding | None, place: Metadata | None
) -> Instruction:
    """``value`` with a sharding constraint, or itself without one."""
    if sharding is None:
        return value
    attrs = {"custom_call_target": "Sharding"}
    return scope.emit("custom-call", value.shape, (value,), attrs, metadata=place, sharding=sharding)


def copy_constant(scope: ConversionScope, value: Instruction, op: MlirOp) -> Instruction:
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


def free_values(region: Region) -> tuple[int, ...]:
    """Values that a region uses but does not define, in order of first use."""
    defined: set[int] = set()
    free: dict[int, None] = {}

    def visit(region: Region) -> None:
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


def _used_values(regions: Iterable[Region]) -> Iterator[int]:
    """The operands of all ops in regions, and in regions inside them."""
    for region in regions:
        for _, _, _, ops in region:
            for _, operands, _, _, _, inner, _ in ops:
                yield from operands
                yield from _used_values(inner)


def _normal(block: Block) -> Any:
    """A block as a key: values renumbered from its first one, locations left out."""
    base = block[0][0] if block[0] else 0

    def op_key(op: PlainOp) -> Any:
        name, operands, first, types, attributes, regions, _ = op
        inner = tuple(tuple(block_key(b) for b in r) for r in regions)
        return (name, tuple([n - base for n in operands]), first - base, types, tuple(attributes.items()), inner)

    def block_key(b: Block) -> Any:
        return (tuple(n - base for n in b[0]), b[1], tuple([op_key(o) for o in b[3]]))

    return block_key(block)
