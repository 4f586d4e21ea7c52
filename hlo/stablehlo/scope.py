"""Where an op is converted: the values in sight, and the means to emit HLO instructions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shardc.hlo.errors import Location, UnsupportedError
from shardc.hlo.ir.ir import NO_ATTRS, Computation, Instruction, Metadata
from shardc.hlo.ir.sharding import AnySharding, Sharding, TileSharding
from shardc.hlo.ir.types import DType, Shape, array_shape, tuple_shape
from shardc.hlo.stablehlo.tables import Tables, literal_ints

if TYPE_CHECKING:
    from shardc.hlo.stablehlo.functions import Converter

__all__ = ["Handler", "Op", "Scope"]


class Scope:
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
        capture: Callable[[Scope, int], Instruction] | None = None,
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
            assert self.capture is not None, f"value {number} is not in sight of {self.name}"
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


class Op:
    """One MLIR op with its operands already converted; what a handler works with.

    ``shapes`` are the result shapes, ``shardings`` one entry per result (None where nothing is said).
    """

    __slots__ = ("first", "metadata", "name", "operands", "raw", "regions", "scope", "shapes", "tables")

    def __init__(self, scope: Scope, plain: tuple[Any, ...]) -> None:
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
            return self.scope.converter.written_sharding(self.get("mhlo.sharding"), len(self.shapes), self.place)
        return (None,) * len(self.shapes)

    def unsupported(self, why: str = "", fix: str | None = None) -> UnsupportedError:
        return UnsupportedError(
            f"{self.name}" + (f": {why}" if why else " is not supported"), where=self.place, fix=fix
        )

    def emit(self, opcode: str, shape: Shape, *operands: Instruction, **attrs: Any) -> Instruction:
        """An instruction on the way to the result."""
        return self.scope.emit(opcode, shape, operands, attrs or NO_ATTRS, metadata=self.metadata)

    def result(self, opcode: str, *operands: Instruction, **attrs: Any) -> tuple[Instruction]:
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

    def results(self, opcode: str, *operands: Instruction, **attrs: Any) -> tuple[Instruction, ...]:
        """Like `result`, also for several results: a tuple and its elements."""
        if len(self.shapes) == 1:
            return self.result(opcode, *operands, **attrs)
        given = self.with_rule(attrs)
        whole = self.scope.emit(opcode, tuple_shape(*self.shapes), operands, given, metadata=self.metadata)
        return self.elements(whole)

    def elements(
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

    def tuple_of(self, values: Sequence[Instruction]) -> Instruction:
        return self.emit("tuple", tuple_shape(*(v.shape for v in values)), *values)

    def broadcast_scalar(self, value: Instruction, dims: tuple[int, ...]) -> Instruction:
        """``value`` itself, or the scalar spread over ``dims``."""
        if value.shape.dims == dims:
            return value
        return self.emit("broadcast", array_shape(value.shape.dtype, *dims), value, dimensions=())

    def region(self, index: int, kind: str = "region") -> Computation:
        """Region ``index`` as a computation over its own arguments (constants from outside are copied in)."""
        return self.scope.converter.region_computation(self.scope, self, self.regions[index], kind)

    def closure(self, index: int, kind: str) -> tuple[Computation, tuple[Instruction, ...]]:
        """Region ``index`` as a computation of its arguments and of what it uses from outside; and those values,
        after the op's own operands."""
        return self.scope.converter.closure(self.scope, self, self.regions[index], kind)

    @property
    def dtype(self) -> DType:
        return self.shapes[0].dtype


#: Converts one op: emits instructions, returns one per result.
Handler = Callable[[Op], Sequence[Instruction]]
