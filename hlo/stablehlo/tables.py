"""The tables of the plain form (see ``mlir/extract.py``) as shapes, attribute values, metadata and shardings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from shardc.hlo.errors import AnnotationError, Location, UnsupportedError
from shardc.hlo.ir.groups import AxisGroups
from shardc.hlo.ir.ir import Metadata
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, DimSharding, Sharding
from shardc.hlo.ir.types import Shape, array_shape, token_shape, tuple_shape
from shardc.hlo.stablehlo.constants import element_type, literal_from_bytes, literal_from_text

__all__ = [
    "Block",
    "PlainFunction",
    "PlainOp",
    "Region",
    "Tables",
]

#: An op of the plain form: name, operands, its first value, types of results, attributes, regions, location.
PlainOp = tuple[str, tuple[int, ...], int, tuple[int, ...], dict[str, int], tuple["Region", ...], int]
#: A block: the numbers, types and locations of its arguments, and its ops.
Block = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[PlainOp, ...]]
Region = tuple[Block, ...]
#: A function: name, whether it is public (None: no function), attributes of arguments and results, body.
PlainFunction = tuple[str, bool | None, tuple[dict[str, int], ...], tuple[dict[str, int], ...], Region]


class Tables:
    """Looks up types, attributes and locations by index; each is converted once."""

    def __init__(self, plain: Mapping[str, Any], file: str, own_folders: tuple[str, ...] = ()) -> None:
        self.plain = plain
        self.file = file
        self.own_folders = own_folders  # of shardc: never a user's source
        self._shapes: dict[int, Shape] = {}
        self._attributes: dict[int, Any] = {}
        self._metadata: dict[tuple[int, Metadata | None], Metadata | None] = {}
        self.found_user_source = False

    def shape(self, index: int) -> Shape:
        found = self._shapes.get(index)
        if found is None:
            found = self._shapes[index] = self._shape(self.plain["types"][index])
        return found

    def shapes(self, indices: tuple[int, ...]) -> tuple[Shape, ...]:
        return tuple([self.shape(i) for i in indices])

    def _shape(self, plain: tuple[Any, ...]) -> Shape:
        kind = plain[0]
        if kind == "tensor":
            if -1 in plain[2]:
                raise UnsupportedError(
                    f"the dynamic shape {self.type_text(plain)} is not supported",
                    where=Location(self.file),
                    fix="give the shapes of its arguments: shardc.load(path, *arguments), or shardc.from_jax(exported, "
                    "*arguments); or export it with concrete shapes",
                )
            return array_shape(element_type(plain[1]), *plain[2])
        if kind == "token":
            return token_shape()
        if kind == "tuple":
            return tuple_shape(*(self._shape(p) for p in plain[1]))
        raise UnsupportedError(f"type {plain[1]} is not supported", where=Location(self.file))

    @staticmethod
    def type_text(plain: tuple[Any, ...]) -> str:
        dims = "".join(("?" if d < 0 else str(d)) + "x" for d in plain[2])
        return f"tensor<{dims}{plain[1]}>"

    def attribute(self, index: int) -> Any:
        """Constants as `Literal`, shardings as `Sharding`, the rest as in the plain form."""
        if index not in self._attributes:
            self._attributes[index] = self._value(self.plain["attributes"][index])
        return self._attributes[index]

    def attributes(self, indices: Mapping[str, int]) -> dict[str, Any]:
        return {name: self.attribute(i) for name, i in indices.items()}

    def _value(self, plain: Any) -> Any:
        if isinstance(plain, dict):
            return {k: self._value(v) for k, v in plain.items()}
        if not isinstance(plain, tuple) or not plain:
            return plain
        match plain[0]:
            case "dense":
                return literal_from_bytes(self._shape(plain[1]), plain[2], plain[3])
            case "dense_text":
                return literal_from_text(self._shape(plain[1]), plain[2])
            case "sharding":
                return self._sharding(plain)
            case "axis_groups":
                return AxisGroups(self._mesh_of(plain[1]), _axes(plain[2]))
            case "other":
                return plain[1]
        return tuple(self._value(p) for p in plain)

    def metadata(self, index: int, fallback: Metadata | None = None) -> Metadata | None:
        """The place of a location; ``fallback`` lends its source where the location names no file."""
        key = (index, fallback)
        if key not in self._metadata:
            self._metadata[key] = self._place(self.plain["locations"][index], fallback)
        return self._metadata[key]

    def _place(self, plain: tuple[Any, ...], fallback: Metadata | None) -> Metadata | None:
        name, file, line, column, end_line, end_column = plain
        if file.startswith(self.own_folders):
            file, line, column, end_line, end_column = "", 0, 0, 0, 0
        if file == "-":  # MLIR's name for the text it was given: the op itself has no location
            file = self.file
        elif file:
            self.found_user_source = True
        if not file and fallback is not None:
            return Metadata(
                name or fallback.op_name,
                source_file=fallback.source_file,
                source_line=fallback.source_line,
                source_column=fallback.source_column,
                source_end_line=fallback.source_end_line,
                source_end_column=fallback.source_end_column,
            )
        if not name and not file:
            return None
        return Metadata(
            name,
            source_file=file,
            source_line=line,
            source_column=column,
            source_end_line=end_line,
            source_end_column=end_column,
        )

    @cached_property
    def meshes(self) -> Mapping[str, Mesh]:
        return {name: _mesh(plain, name, self.file) for name, plain in self.plain["meshes"].items()}

    @cached_property
    def mesh(self) -> Mesh | None:
        """The program's mesh: the first one with axes that a sharding uses, of several devices where there is such a
        one, or that is there at all."""
        with_axes = {name: m for name, m in self.meshes.items() if m.axes}
        used = [with_axes[n] for n in _mesh_names(self.plain["attributes"]) if n in with_axes]
        several = [m for m in used if m.size > 1]
        return next(iter((*several, *used, *with_axes.values())), None)

    def _sharding(self, plain: tuple[Any, ...]) -> Sharding:
        _, reference, dims, replicated, unreduced, reduction = plain
        mesh = self._mesh_of(reference)
        if mesh.axes and mesh.size == 1 and self.mesh is not None and self.mesh.size > 1:
            # A program for one device, called in one for several: nothing is split.
            return Sharding(self.mesh, tuple(DimSharding((), closed, priority or 0) for _, closed, priority in dims))
        return Sharding(
            mesh,
            tuple(DimSharding(_axes(axes), closed, priority or 0) for axes, closed, priority in dims),
            _axes(replicated),
            _axes(unreduced),
            reduction if unreduced else "sum",
        )

    def _mesh_of(self, reference: Any) -> Mesh:
        return self.meshes[reference] if isinstance(reference, str) else _mesh(reference, "mesh", self.file)


def _mesh(plain: tuple[Any, ...], name: str, file: str) -> Mesh:
    axes, device_ids = plain
    try:
        return Mesh(tuple(axes), tuple(device_ids) or None, name)
    except AnnotationError as e:
        raise AnnotationError(e.what, where=f"{Location(file)}, mesh @{name}", fix=e.fix) from None


def _mesh_names(plain: Any) -> Iterator[str]:
    """The names that the shardings among attributes refer to."""
    if isinstance(plain, dict):
        plain = tuple(plain.values())
    if isinstance(plain, tuple) and plain:
        if plain[0] == "sharding" and isinstance(plain[1], str):
            yield plain[1]
        else:
            for p in plain:
                yield from _mesh_names(p) if isinstance(p, (tuple, dict)) else ()


def _axes(plain: tuple[Any, ...]) -> tuple[AxisRef, ...]:
    return tuple(AxisRef(name, pre, size) for name, pre, size in plain)


def literal_ints(value: Literal | tuple[int, ...] | int) -> tuple[int, ...]:
    """The integers of an attribute, whichever way it was written."""
    if isinstance(value, Literal):
        return tuple(int(v) for v in value.array.reshape(-1))
    return (value,) if isinstance(value, int) else tuple(int(v) for v in value)
