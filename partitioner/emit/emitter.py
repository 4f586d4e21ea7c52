"""Writing the per-device program: one `Emitter` per computation, helpers for what every rule needs.

All shapes are given, none inferred. Scalars that many rules share (partition coordinates, masks) are made once per
computation. What is emitted carries the emitter's current ``metadata`` and ``origin``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shardc.hlo.ir.build import binary_computation
from shardc.hlo.ir.groups import AxisGroups, AxisPairs
from shardc.hlo.ir.ir import NO_ATTRS, Computation, Instruction, Metadata, Origin
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import splat_source
from shardc.hlo.ir.reducers import extreme_of
from shardc.hlo.ir.types import DTYPES, DType, Shape, array_shape, tuple_shape
from shardc.partitioner.emit.layout import Atoms, AxisLayout, AxisTable
from shardc.partitioner.emit.names import NameSupply

__all__ = ["COMBINERS", "Emitter", "Reducers", "identity_of"]

#: HLO opcode that combines two partial values.
COMBINERS = {"sum": "add", "max": "maximum", "min": "minimum"}


def identity_of(opcode: str, dtype: DType) -> Any:
    """The value that ``opcode`` (add, multiply, maximum, minimum, and, or, xor) leaves others unchanged with."""
    if opcode in ("add", "or", "xor"):
        return dtype.numpy.type(0)
    if opcode == "multiply":
        return dtype.numpy.type(1)
    if opcode == "and":
        return np.True_ if dtype.kind == "pred" else np.invert(np.zeros((), dtype.numpy))[()]
    return extreme_of(dtype, greatest=opcode == "minimum")


class Reducers:
    """Scalar computations ``(a, b) -> opcode(a, b)``, one per opcode and element type, shared by a whole module."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, DType], Computation] = {}

    def get(self, opcode: str, dtype: DType) -> Computation:
        key = (opcode, dtype)
        if key not in self._made:
            self._made[key] = binary_computation(opcode, dtype)
        return self._made[key]


class Emitter:
    """Collects the instructions of one local computation."""

    def __init__(self, table: AxisTable, reducers: Reducers, names: NameSupply) -> None:
        self.table = table
        self.index_type = table.index
        self.reducers = reducers
        self.names = names
        self.instructions: list[Instruction] = []
        self.metadata: Metadata | None = None
        self.origin: Origin | None = None
        self._scalars: dict[object, Instruction] = {}
        self._masks: dict[object, Instruction] = {}

    # -- one instruction -------------------------------------------------------------------------------------

    def append(self, instruction: Instruction, *, own: bool = False) -> Instruction:
        """Add a new instruction; it keeps its name if it is the program's ``own``, else gets a fresh one."""
        instruction.name = self.names.own(instruction.name) if own else self.names.fresh(instruction.name)
        self.instructions.append(instruction)
        return instruction

    def add(self, opcode: str, shape: Shape, *operands: Instruction, name: str = "", **attrs: object) -> Instruction:
        """Append an instruction with the current provenance."""
        return self.append(
            Instruction(
                opcode,
                shape,
                operands,
                attrs or NO_ATTRS,
                name=name,
                metadata=self.metadata,
                origin=self.origin,
            ),
            own=bool(name),
        )

    def inline(self, computation: Computation, operands: Sequence[Instruction]) -> tuple[Instruction, ...]:
        """The values of a computation on ``operands``, its instructions written here."""
        new: dict[Instruction, Instruction] = {p: operands[p.attrs["index"]] for p in computation.parameters}
        for i in computation:
            if i.opcode not in ("parameter", "tuple"):
                made = i.replace(operands=tuple(new[o] for o in i.operands), metadata=self.metadata, origin=self.origin)
                new[i] = self.append(made)
        root = computation.root
        return tuple(new[o] for o in (root.operands if root.opcode == "tuple" else (root,)))

    def _shared(self, key: object, opcode: str, dtype: DType, *operands: Instruction, **attrs: object) -> Instruction:
        """A scalar that depends on ``key`` only."""
        found = self._scalars.get(key)
        if found is None:
            made = Instruction(opcode, array_shape(dtype), operands, attrs or NO_ATTRS)
            found = self._scalars[key] = self.append(made)
        return found

    # -- constants and scalars -------------------------------------------------------------------------------

    def scalar(self, value: ArrayLike, dtype: DType) -> Instruction:
        literal = Literal(np.asarray(value, dtype.numpy))
        return self._shared(("constant", literal), "constant", dtype, literal=literal)

    def index(self, value: int) -> Instruction:
        """A constant of the index type."""
        return self.scalar(value, self.index_type)

    def zero(self, dtype: DType) -> Instruction:
        """The constant whose bits are zero."""
        return self.scalar(np.zeros((), dtype.numpy), dtype)

    def identity(self, reduction: str, dtype: DType) -> Instruction:
        """The scalar that does not change a sum, max or min."""
        if reduction == "sum":
            return self.zero(dtype)
        return self.scalar(identity_of(COMBINERS.get(reduction, reduction), dtype), dtype)

    def splat(self, scalar: Instruction, dims: tuple[int, ...]) -> Instruction:
        """``scalar`` everywhere."""
        if not dims:
            return scalar
        key = ("splat", scalar, dims)
        if key not in self._masks:
            made = Instruction("broadcast", scalar.shape.with_dims(dims), (scalar,), {"dimensions": ()})
            self._masks[key] = self.append(made)
        return self._masks[key]

    def scale(self, index: Instruction, factor: int) -> Instruction:
        if factor == 1:
            return index
        return self._shared(("scaled", index, factor), "multiply", self.index_type, index, self.index(factor))

    def plus(self, index: Instruction, offset: int) -> Instruction:
        if offset == 0:
            return index
        return self._shared(("plus", index, offset), "add", self.index_type, index, self.index(offset))

    # -- where am I ------------------------------------------------------------------------------------------

    def coordinate(self, atoms: Atoms) -> Instruction:
        """This device's position over ``atoms``, major to minor, as an index scalar."""
        key = ("coordinate", atoms)
        found = self._scalars.get(key)
        if found is None:
            found = self._scalars[key] = self._coordinate(atoms)
        return found

    def _coordinate(self, atoms: Atoms) -> Instruction:
        table = self.table
        total: Instruction | None = None
        end = len(atoms)
        weight = 1
        while end > 0:
            start = end - 1
            while start > 0 and atoms[start - 1] == atoms[start] - 1:
                start -= 1
            run = atoms[start:end]
            stride = table.extent(range(run[-1] + 1, table.count))
            part = self._divide(self._position(), stride)
            if run[0] > 0:
                part = self._shared(
                    ("remainder", part, table.extent(run)),
                    "remainder",
                    self.index_type,
                    part,
                    self.index(table.extent(run)),
                )
            part = self.scale(part, weight)
            total = part if total is None else self._shared(("sum", total, part), "add", self.index_type, part, total)
            weight *= table.extent(run)
            end = start
        return total if total is not None else self.index(0)

    def _divide(self, index: Instruction, by: int) -> Instruction:
        if by == 1:
            return index
        return self._shared(("divided", index, by), "divide", self.index_type, index, self.index(by))

    def _position(self) -> Instruction:
        """This device's place in the mesh's row-major grid."""
        device = self._shared("partition-id", "partition-id", DTYPES["u32"])
        device = self._shared("device", "convert", self.index_type, device)
        ids = self.table.mesh.device_ids
        if ids is None:
            return device
        places = np.empty(len(ids), self.index_type.numpy)
        places[list(ids)] = np.arange(len(ids))
        key = "places"
        if key not in self._masks:
            shape = array_shape(self.index_type, len(ids))
            self._masks[key] = self.append(Instruction("constant", shape, (), {"literal": Literal(places)}))
            one = Instruction(
                "dynamic-slice",
                array_shape(self.index_type, 1),
                (self._masks[key], device),
                {"dynamic_slice_sizes": (1,)},
            )
            self._scalars["position"] = self.append(
                Instruction("reshape", array_shape(self.index_type), (self.append(one),))
            )
        return self._scalars["position"]

    # -- local data movement ---------------------------------------------------------------------------------

    def reshape(self, x: Instruction, dims: tuple[int, ...]) -> Instruction:
        return x if x.shape.dims == dims else self.add("reshape", x.shape.with_dims(dims), x)

    def transpose(self, x: Instruction, order: tuple[int, ...]) -> Instruction:
        if order == tuple(range(len(order))):
            return x
        return self.add("transpose", x.shape.with_dims(tuple(x.shape.dims[d] for d in order)), x, dimensions=order)

    def resize(self, x: Instruction, dim: int, size: int) -> Instruction:
        """Cut or zero-pad the end of ``dim``."""
        old = x.shape.dims[dim]
        if old == size:
            return x
        dims = (*x.shape.dims[:dim], size, *x.shape.dims[dim + 1 :])
        shape = x.shape.with_dims(dims)
        if size < old:
            return self.add("slice", shape, x, slice=tuple((0, n, 1) for n in dims))
        padding = tuple((0, size - old if d == dim else 0, 0) for d in range(len(dims)))
        return self.add("pad", shape, x, self.scalar(x.shape.dtype.numpy.type(0), x.shape.dtype), padding=padding)

    def cut(self, x: Instruction, dim: int, low: int, high: int) -> Instruction:
        """Elements ``low`` to ``high`` of ``dim``."""
        if (low, high) == (0, x.shape.dims[dim]):
            return x
        bounds = tuple((low, high, 1) if d == dim else (0, n, 1) for d, n in enumerate(x.shape.dims))
        dims = (*x.shape.dims[:dim], high - low, *x.shape.dims[dim + 1 :])
        return self.add("slice", x.shape.with_dims(dims), x, slice=bounds)

    def dynamic_slice(self, x: Instruction, dim: int, start: Instruction, size: int) -> Instruction:
        dims = (*x.shape.dims[:dim], size, *x.shape.dims[dim + 1 :])
        if (scalar := splat_source(x)) is not None:
            return self.splat(scalar, dims)
        starts = [start if d == dim else self.index(0) for d in range(len(dims))]
        return self.add("dynamic-slice", x.shape.with_dims(dims), x, *starts, dynamic_slice_sizes=dims)

    def pad_around(self, x: Instruction, dim: int, atoms: Atoms, other: Instruction) -> Instruction:
        """``x`` at its place among the parts that the members over ``atoms`` have of ``dim``, ``other`` elsewhere."""
        part = x.shape.dims[dim]
        dims = (*x.shape.dims[:dim], part * self.table.extent(atoms), *x.shape.dims[dim + 1 :])
        if _holds_only(x, other):
            return self.splat(other, dims)
        start = self.scale(self.coordinate(atoms), part)
        starts = [start if d == dim else self.index(0) for d in range(len(dims))]
        return self.add("dynamic-update-slice", x.shape.with_dims(dims), self.splat(other, dims), x, *starts)

    def concatenate(self, parts: Sequence[Instruction], dim: int) -> Instruction:
        if len(parts) == 1:
            return parts[0]
        dims = list(parts[0].shape.dims)
        dims[dim] = sum(p.shape.dims[dim] for p in parts)
        return self.add("concatenate", parts[0].shape.with_dims(tuple(dims)), *parts, dimensions=(dim,))

    def reduce(
        self, body: Computation, arrays: Sequence[Instruction], initials: Sequence[Instruction], dim: int
    ) -> list[Instruction]:
        """Arrays of equal dimensions reduced together along ``dim``."""
        dims = arrays[0].shape.dims
        shapes = [x.shape.with_dims((*dims[:dim], *dims[dim + 1 :])).plain for x in arrays]
        shape = shapes[0] if len(shapes) == 1 else tuple_shape(*shapes)
        made = self.add("reduce", shape, *arrays, *initials, dimensions=(dim,), to_apply=body)
        if len(shapes) == 1:
            return [made]
        return [self.add("get-tuple-element", s, made, index=i) for i, s in enumerate(shapes)]

    # -- masks -----------------------------------------------------------------------------------------------

    def select(self, condition: Instruction, yes: Instruction, no: Instruction) -> Instruction:
        return self.add("select", yes.shape, condition, yes, no)

    def keep_on_first(self, x: Instruction, atoms: Atoms, other: Instruction) -> Instruction:
        """``x`` at position 0 over ``atoms``, the scalar ``other`` elsewhere; nothing to do where they are the same."""
        if _holds_only(x, other):
            return x
        key = ("first", atoms)
        if key not in self._scalars:
            made = Instruction(
                "compare", array_shape("pred"), (self.coordinate(atoms), self.index(0)), {"direction": "EQ"}
            )
            self._scalars[key] = self.append(made)
        condition = self.splat(self._scalars[key], x.shape.dims)
        return self.select(condition, x, self.splat(other, x.shape.dims))

    def mask_padding(
        self, x: Instruction, dims: tuple[int, ...], layout: AxisLayout, which: Sequence[int], fill: Instruction
    ) -> Instruction:
        """Set the padding along the dimensions ``which`` of a global array of ``dims`` to the scalar ``fill``."""
        for d in which:
            if self.table.is_uneven(layout.dims[d], dims[d]):
                inside = self._inside(x.shape.dims, d, layout.dims[d], dims[d])
                x = self.select(inside, x, self.splat(fill, x.shape.dims))
        return x

    def _inside(self, local: tuple[int, ...], dim: int, atoms: Atoms, n: int) -> Instruction:
        """Which elements of a local array are not padding along ``dim``."""
        key = ("inside", local, dim, atoms, n)
        if key not in self._masks:
            line = (local[dim],)
            place, limit = self.global_index(line, 0, atoms), self.splat(self.index(n), line)
            shape = array_shape("pred", *line)
            made = self.append(Instruction("compare", shape, (place, limit), {"direction": "LT"}))
            self._masks[key] = self._along(made, local, dim)
        return self._masks[key]

    def global_index(self, local: tuple[int, ...], dim: int, atoms: Atoms, dtype: DType | None = None) -> Instruction:
        """The global index along ``dim`` of every element of a local array, of the index type if none is given."""
        dtype = dtype or self.index_type
        if not atoms:
            return self.append(Instruction("iota", array_shape(dtype, *local), (), {"iota_dimension": dim}))
        line = array_shape(dtype, local[dim])
        index = self.append(Instruction("iota", line, (), {"iota_dimension": 0}))
        start = self.scale(self.coordinate(atoms), local[dim])
        if dtype is not self.index_type:
            start = self.append(Instruction("convert", array_shape(dtype), (start,)))
        index = self.append(Instruction("add", line, (index, self.splat(start, line.dims))))
        return self._along(index, local, dim)

    def _along(self, line: Instruction, local: tuple[int, ...], dim: int) -> Instruction:
        """The same line along ``dim`` everywhere: what is one number per line is computed once."""
        if len(local) == 1:
            return line
        shape = line.shape.with_dims(local)
        return self.append(Instruction("broadcast", shape, (line,), {"dimensions": (dim,)}))

    # -- collectives -----------------------------------------------------------------------------------------

    def _groups(self, atoms: Atoms) -> AxisGroups:
        return AxisGroups(self.table.mesh, self.table.axes(atoms))

    def all_reduce(self, x: Instruction, atoms: Atoms, reduction: str) -> Instruction:
        """``reduction`` is sum, max, min, an HLO opcode, or bits: one member has an element, the others zero bits."""
        if reduction == "bits":
            bits = _as_integers(self, x)
            return _from_integers(self, self.all_reduce(bits, atoms, "sum"), x.shape.dtype)
        body = self.reducers.get(COMBINERS.get(reduction, reduction), x.shape.dtype)
        return self.add("all-reduce", x.shape, x, replica_groups=self._groups(atoms), to_apply=body)

    def reduce_scatter(self, x: Instruction, dim: int, atoms: Atoms, reduction: str) -> Instruction:
        """As `all_reduce`, and each member keeps its part along ``dim``."""
        if reduction == "bits":
            bits = _as_integers(self, x)
            part = self.reduce_scatter(bits, bits.shape.rank - x.shape.rank + dim, atoms, "sum")
            return _from_integers(self, part, x.shape.dtype)
        body = self.reducers.get(COMBINERS.get(reduction, reduction), x.shape.dtype)
        dims = list(x.shape.dims)
        dims[dim] //= self.table.extent(atoms)
        return self.add(
            "reduce-scatter",
            x.shape.with_dims(tuple(dims)),
            x,
            replica_groups=self._groups(atoms),
            dimensions=(dim,),
            to_apply=body,
        )

    def all_gather(self, x: Instruction, dim: int, atoms: Atoms) -> Instruction:
        dims = list(x.shape.dims)
        dims[dim] *= self.table.extent(atoms)
        shape = x.shape.with_dims(tuple(dims))
        return self.add("all-gather", shape, x, replica_groups=self._groups(atoms), dimensions=(dim,))

    def all_to_all(self, x: Instruction, dim: int, atoms: Atoms) -> Instruction:
        """Dimension ``dim`` is the members: part j goes to member j."""
        assert x.shape.dims[dim] == self.table.extent(atoms)
        return self.add("all-to-all", x.shape, x, replica_groups=self._groups(atoms), dimensions=(dim,))

    def permute(self, x: Instruction, pairs: AxisPairs) -> Instruction:
        return self.add("collective-permute", x.shape, x, source_target_pairs=pairs)

    def nbytes(self, x: Instruction) -> int:
        return math.prod(x.shape.dims) * x.shape.dtype.nbytes


def _holds_only(x: Instruction, scalar: Instruction) -> bool:
    """Whether the constant ``scalar`` is all that ``x`` holds."""
    given = x.operands[0] if x.opcode == "broadcast" else x
    return given.opcode == scalar.opcode == "constant" and given.attrs["literal"] == scalar.attrs["literal"]


# -- bits ---------------------------------------------------------------------------------------------------------


def _as_integers(em: Emitter, x: Instruction) -> Instruction:
    """The bits of ``x``: of complex numbers real and imaginary parts, one after the other in a new first dimension.

    Floats below a byte, which have no NaN, are bf16 there. What is no float stays as it is.
    """
    dtype = x.shape.dtype
    if dtype.is_complex:
        real = DTYPES[f"f{dtype.bits // 2}"]
        parts = (em.add(part, x.shape.with_dtype(real), x) for part in ("real", "imag"))
        return em.concatenate([em.reshape(_as_integers(em, p), (1, *x.shape.dims)) for p in parts], 0)
    if not dtype.is_float:
        return x
    if dtype.bits < 8:
        x = em.add("convert", x.shape.with_dtype(DTYPES["bf16"]), x)
    integer = DTYPES[f"u{x.shape.dtype.bits}"]
    return em.add("bitcast-convert", x.shape.with_dtype(integer), x)


def _from_integers(em: Emitter, x: Instruction, dtype: DType) -> Instruction:
    """The array of which `_as_integers` made ``x``."""
    if dtype.is_complex:
        real, dims = DTYPES[f"f{dtype.bits // 2}"], x.shape.dims[1:]
        parts = (_from_integers(em, em.reshape(em.cut(x, 0, k, k + 1), dims), real) for k in range(2))
        return em.add("complex", x.shape.with_dims(dims).with_dtype(dtype), *parts)
    if not dtype.is_float:
        return x
    carrier = DTYPES["bf16"] if dtype.bits < 8 else dtype
    x = em.add("bitcast-convert", x.shape.with_dtype(carrier), x)
    return x if carrier is dtype else em.add("convert", x.shape.with_dtype(dtype), x)
