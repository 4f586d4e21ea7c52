"""Writing loops over the rows that each shard has: what crosses the border to one shard's program, and small things."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from shardc.hlo.ir.custom_calls import GLOBAL_TO_LOCAL, LOCAL_TO_GLOBAL, MANUAL_AXES
from shardc.hlo.ir.ir import Computation, Instruction, topological
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import make
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AnySharding, AxisRef, DimSharding, Sharding
from shardc.hlo.ir.types import Shape, array_shape, tuple_shape

__all__ = ["LoopStep", "ShardWriter", "SharedRows"]

#: ``step(counter, state, captured)`` gives the state behind an iteration.
LoopStep = Callable[[Instruction, Sequence[Instruction], Sequence[Instruction]], Sequence[Instruction]]


@dataclass(frozen=True, slots=True)
class SharedRows:
    """``count`` rows over ``axes``; the first iteration is at row ``first``."""

    mesh: Mesh
    axes: tuple[AxisRef, ...]
    count: int
    first: int

    @property
    def shards(self) -> int:
        return math.prod(a.extent(self.mesh) for a in self.axes)

    @property
    def of_shard(self) -> int:
        """Rows of each shard, the last of which may stand for none."""
        return -(-self.count // self.shards)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(a.name for a in self.axes)

    def split(self, sharding: Sharding, dim: int = -1) -> Sharding:
        """A layout with the rows' axes on ``dim`` alone; on no dimension without one."""
        dims = [DimSharding(tuple(a for a in d.axes if a.name not in self.names)) for d in sharding.dims]
        if dim >= 0:
            dims[dim] = DimSharding(self.axes)
        return Sharding(self.mesh, tuple(dims))

    def inside(self, sharding: Sharding) -> Sharding:
        """That of a value of one shard."""
        return replace(self.split(sharding), manual=self.names)


@dataclass(slots=True)
class ShardWriter:
    """Makes instructions in place of ``like``, outside and in the program of one shard."""

    rows: SharedRows
    like: Instruction
    entered: dict[tuple[Instruction, int], Instruction] = field(default_factory=dict)

    def put(
        self, opcode: str, shape: Shape, operands: Iterable[Instruction], sharding: AnySharding, **attrs: object
    ) -> Instruction:
        made = make(opcode, shape, operands, self.like, **attrs)
        made.sharding = sharding
        return made

    # The border.

    def enter(self, x: Instruction, dim: int = -1) -> Instruction:
        """``x`` as a shard has it, cut along ``dim``; whole without one."""
        if (x, dim) not in self.entered:
            held = self.constrained(x, self.rows.split(x.axis_sharding, dim))
            dims = tuple(n // self.rows.shards if d == dim else n for d, n in enumerate(x.shape.dims))
            self.entered[x, dim] = self._cross(GLOBAL_TO_LOCAL, held, dims, self.rows.inside(x.axis_sharding))
        return self.entered[x, dim]

    def leave(self, x: Instruction, dim: int) -> Instruction:
        """What all shards have along ``dim``, as one."""
        dims = tuple(n * self.rows.shards if d == dim else n for d, n in enumerate(x.shape.dims))
        return self._cross(LOCAL_TO_GLOBAL, x, dims, self.rows.split(x.axis_sharding, dim))

    def leave_stacked(self, x: Instruction) -> Instruction:
        """What each shard has, along a new first dimension."""
        return self.leave(self.reshaped(x, (1, *x.shape.dims), stacked(x.axis_sharding)), 0)

    def constrained(self, x: Instruction, sharding: Sharding) -> Instruction:
        return self.put("custom-call", x.shape.plain, (x,), sharding, custom_call_target="Sharding")

    def _cross(self, target: str, x: Instruction, dims: tuple[int, ...], sharding: Sharding) -> Instruction:
        axes = ((MANUAL_AXES, ",".join(self.rows.names)),)
        shape = x.shape.plain.with_dims(dims)
        return self.put("custom-call", shape, (x,), sharding, custom_call_target=target, frontend_attributes=axes)

    # Values.

    def number(self, value: object, shape: Shape, like: Sharding) -> Instruction:
        """A constant scalar of the type of ``shape``, inside or outside as ``like`` is."""
        literal = Literal(np.asarray(value).astype(shape.dtype.numpy))
        return self.put("constant", literal.shape, (), replace(like, dims=()), literal=literal)

    def splat(self, value: object, like: Instruction) -> Instruction:
        """A constant for each element of ``like``."""
        one = self.number(value, like.shape, like.axis_sharding)
        return self.spread(one, like)

    def spread(self, x: Instruction, like: Instruction) -> Instruction:
        """A scalar for each element of ``like``."""
        if not like.shape.dims:
            return x
        return self.put("broadcast", x.shape.plain.with_dims(like.shape.dims), (x,), like.sharding, dimensions=())

    def reshaped(self, x: Instruction, dims: tuple[int, ...], sharding: Sharding) -> Instruction:
        return x if x.shape.dims == dims else self.put("reshape", x.shape.plain.with_dims(dims), (x,), sharding)

    def arithmetic(self, opcode: str, *operands: Instruction) -> Instruction:
        """An operation by elements that gives what its last operand is."""
        return self.put(opcode, operands[-1].shape.plain, operands, operands[-1].sharding)

    def compared(self, x: Instruction, y: Instruction, direction: str) -> Instruction:
        shape = array_shape("pred", *x.shape.dims)
        return self.put("compare", shape, (x, y), x.sharding, direction=direction)

    def chosen(self, test: Instruction | None, x: Instruction, y: Instruction) -> Instruction:
        """``x`` where the scalar ``test`` is true, or there is none, else ``y``."""
        return x if test is None else self.arithmetic("select", self.spread(test, x), x, y)

    def padded(self, x: Instruction, dim: int, low: int, count: int) -> Instruction:
        """``x`` moved by ``low`` rows, and ``count`` of them, split along them."""
        high = count - low - x.shape.dims[dim]
        if not low and not high:
            return x
        edges = tuple((low, high, 0) if d == dim else (0, 0, 0) for d in range(x.shape.rank))
        shape = x.shape.plain.with_dims(tuple(count if d == dim else n for d, n in enumerate(x.shape.dims)))
        zero = self.number(0, x.shape, Sharding.replicate(self.rows.mesh, 0))
        return self.put("pad", shape, (x, zero), self.rows.split(x.axis_sharding, dim), padding=edges)

    def row(self, x: Instruction, place: Instruction, dim: int, sharding: Sharding) -> Instruction:
        """One row of ``x``."""
        dims = tuple(1 if d == dim else n for d, n in enumerate(x.shape.dims))
        starts = self._starts(x, place, dim)
        shape = x.shape.plain.with_dims(dims)
        return self.put("dynamic-slice", shape, (x, *starts), sharding, dynamic_slice_sizes=dims)

    def with_row(self, x: Instruction, value: Instruction, place: Instruction, dim: int) -> Instruction:
        """``x`` with another row."""
        starts = self._starts(x, place, dim)
        return self.put("dynamic-update-slice", x.shape.plain, (x, value, *starts), x.sharding)

    def _starts(self, x: Instruction, place: Instruction, dim: int) -> list[Instruction]:
        zero = self.number(0, place.shape, place.axis_sharding)
        return [place if d == dim else zero for d in range(x.shape.rank)]

    def backwards(self, x: Instruction, count: int) -> Instruction:
        """The number of what is ``x``-th of ``count`` from behind."""
        return self.arithmetic("subtract", self.number(count - 1, x.shape, x.axis_sharding), x)

    def loop(
        self, trips: int, begin: Sequence[Instruction], captured: Sequence[Instruction], step: LoopStep
    ) -> list[Instruction]:
        """``begin`` behind so many steps, each of which may read what is ``captured``."""
        scalar, count = replace(begin[0].axis_sharding, dims=()), array_shape("s32")
        state = [self.number(0, count, scalar), *begin, *captured]
        shape = tuple_shape(*(x.shape.plain for x in state))
        shardings = tuple(x.axis_sharding for x in state)

        def elements(of: Instruction) -> list[Instruction]:
            numbered = enumerate(state)
            return [self.put("get-tuple-element", x.shape.plain, (of,), x.sharding, index=k) for k, x in numbered]

        whole = self.put("parameter", shape, (), shardings, index=0)
        test = self.compared(elements(whole)[0], self.number(trips, count, scalar), "LT")
        condition = Computation(f"{self.like.name}.rows", topological([whole, test]), test)
        whole = self.put("parameter", shape, (), shardings, index=0)
        counter, *values = elements(whole)
        after = step(counter, values[: len(begin)], values[len(begin) :])
        counted = self.arithmetic("add", counter, self.number(1, count, scalar))
        root = self.put("tuple", shape, (counted, *after, *values[len(begin) :]), shardings)
        body = Computation(f"{self.like.name}.row", topological([whole, root]), root)
        first = self.put("tuple", shape, state, shardings)
        made = self.put("while", shape, (first,), shardings, condition=condition, body=body)
        return elements(made)[1 : 1 + len(begin)]


def stacked(sharding: Sharding) -> Sharding:
    """The layout of a value behind a new first dimension."""
    return replace(sharding, dims=(DimSharding(), *sharding.dims))


def unstacked(sharding: Sharding) -> Sharding:
    """The layout of a row of what is stacked."""
    return replace(sharding, dims=sharding.dims[1:])
