"""One iteration of a stencil on blocks with margins: what it reads around each block, and the same on larger blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shardc.hlo.ir.ir import Computation, Instruction, called_computations, has_side_effect
from shardc.hlo.ir.make import make
from shardc.hlo.ir.opset import OPS
from shardc.hlo.ir.types import array_shape
from shardc.hlo.loops.loop_counter import carried_element
from shardc.partitioner.prepare.wide.grid import Grid, GridBlocks, Margins, number_of, positions

__all__ = ["Iteration", "Needs"]

#: Which dimensions of the grid those of a value are.
_At = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Needs:
    """The margins with which values are needed, by what their dimensions are."""

    values: Mapping[Instruction, Mapping[_At, Margins]]

    def carried(self, body: Computation) -> dict[int, Margins]:
        """By element of the loop's state."""
        found = ((carried_element(i, body), m) for i, seen in self.values.items() for m in seen.values())
        return {k: m for k, m in found if k is not None}


@dataclass(frozen=True, slots=True)
class Iteration:
    """A loop's body over arrays of one grid."""

    grid: Grid
    body: Computation

    @property
    def state(self) -> tuple[Instruction, ...]:
        return self.body.root.operands

    def arrays(self) -> tuple[int, ...]:
        """Elements of the state that are cut up: those of the grid."""
        return tuple(k for k, x in enumerate(self.state) if x.shape.is_array and x.shape.dims == self.grid.dims)

    def needs(self, after: Mapping[int, Margins]) -> Needs | None:
        """What an iteration needs whose state is needed with margins ``after``; None where it is no stencil."""
        found: dict[Instruction, dict[_At, Margins]] = {}

        def need(x: Instruction, at: _At, margins: Margins) -> None:
            seen = found.setdefault(x, {})
            pairs = zip(seen.get(at, self.grid.no_margins), margins, strict=True)
            seen[at] = tuple((max(a, c, 0), max(b, d, 0)) for (a, b), (c, d) in pairs)

        every = tuple(range(len(self.grid.dims)))
        arrays = self.arrays()
        for k, x in enumerate(self.state):
            if k in arrays:
                need(x, every, after[k])
            elif x.shape.is_array and not x.shape.dims:
                need(x, (), self.grid.no_margins)
            elif carried_element(x, self.body) != k:
                return None
        for x in reversed(self.body.instructions):
            for at, margins in list(found.get(x, {}).items()):
                reads = self._reads(x, at, margins)
                if reads is None:
                    return None
                for r in reads:
                    need(*r)
        return Needs(found)

    def _reads(
        self, x: Instruction, at: _At, margins: Margins
    ) -> list[tuple[Instruction, tuple[int, ...], Margins]] | None:
        """What ``x`` with margins is computed of; None where it cannot be."""
        split = [i for i, d in enumerate(at) if d in self.grid.split]
        if any(x.shape.dims[i] != self.grid.dims[at[i]] for i in split):
            return None
        if carried_element(x, self.body) is not None:
            every = tuple(range(len(self.grid.dims)))
            whole = at == every and x.shape.dims == self.grid.dims
            return [] if whole or not split else None
        if not x.shape.dims:
            plain = not any(called_computations(x)) and all(not o.shape.dims for o in x.operands)
            return [(o, (), margins) for o in x.operands] if plain and not has_side_effect(x) else None
        if x.opcode == "iota":
            return []
        if x.opcode == "constant":
            return [] if not split else None
        if x.opcode == "broadcast":
            (o,) = x.operands
            return [(o, tuple(at[d] for d in x.attrs["dimensions"]), margins)]
        if OPS[x.opcode].family == "elementwise" and not any(called_computations(x)):
            return [(o, at if o.shape.dims else (), margins) for o in x.operands]
        turned = _rolled(x)
        if turned is not None and at[turned[1]] in self.grid.split:
            source, dim, shift = turned
            return [(source, at, self._moved(margins, at[dim], shift))]
        if x.opcode == "pad":
            edges = x.attrs["padding"]
            if any(edges[i] != (edges[i][0], -edges[i][0], 0) for i in split):
                return None
            for i in split:
                margins = self._moved(margins, at[i], edges[i][0])
            return [(x.operands[0], at, margins), (x.operands[1], (), margins)]
        if self._is_beside(x, split):
            return [(o, at, margins) for o in x.operands]
        return None

    def _is_beside(self, x: Instruction, split: Sequence[int]) -> bool:
        """Whether ``x`` moves elements along dimensions only that are not split."""
        if x.opcode == "slice":
            return all(x.attrs["slice"][i] == (0, x.operands[0].shape.dims[i], 1) for i in split)
        return x.opcode in ("concatenate", "reverse") and not set(split).intersection(x.attrs["dimensions"])

    def _moved(self, margins: Margins, dim: int, shift: int) -> Margins:
        """What is read by whoever moves by ``shift`` elements."""
        if dim not in self.grid.split:
            return margins
        return tuple((a + shift, b - shift) if d == dim else (a, b) for d, (a, b) in enumerate(margins))

    def on(
        self, blocks: Mapping[int, GridBlocks], scalars: Mapping[int, Instruction], needs: Needs
    ) -> tuple[dict[int, GridBlocks], dict[int, Instruction]]:
        """The state behind the iteration, of its arrays in blocks before it and its other elements."""
        made = _Made(self, dict(blocks), dict(scalars))
        for x in self.body:
            for at, margins in needs.values.get(x, {}).items():
                made.add(x, at, margins)
        return made.after()


def _rolled(x: Instruction) -> tuple[Instruction, int, int] | None:
    """The array that ``x`` has rolled around, the dimension, and by how many elements."""
    if x.opcode != "concatenate" or len(x.operands) != 2:
        return None
    (dim,) = x.attrs["dimensions"]
    a, b = x.operands
    if a.opcode != "slice" or b.opcode != "slice" or a.operands != b.operands:
        return None
    (source,) = a.operands
    whole = [(0, n, 1) for n in source.shape.dims]
    n, cut = source.shape.dims[dim], a.attrs["slice"][dim][0]
    for part, bounds in ((a, (cut, n, 1)), (b, (0, cut, 1))):
        if tuple(map(tuple, part.attrs["slice"])) != (*whole[:dim], bounds, *whole[dim + 1 :]):
            return None
    return source, dim, n - cut if n - cut <= cut else -cut


@dataclass(frozen=True, slots=True)
class _Made:
    """An iteration while it is written: values in blocks, scalars as they are."""

    iteration: Iteration
    arrays: dict[int, GridBlocks]
    others: dict[int, Instruction]
    blocks: dict[tuple[Instruction, _At], GridBlocks] = field(default_factory=dict)
    scalars: dict[Instruction, Instruction] = field(default_factory=dict)

    def after(self) -> tuple[dict[int, GridBlocks], dict[int, Instruction]]:
        """The state behind the iteration."""
        it = self.iteration
        every = tuple(range(len(it.grid.dims)))
        arrays = {k: self.blocks[it.state[k], every] for k in self.arrays}
        return arrays, {k: self.scalars.get(it.state[k], x) for k, x in self.others.items()}

    def add(self, x: Instruction, at: _At, margins: Margins) -> None:
        element = carried_element(x, self.iteration.body)
        if not x.shape.dims:
            if element is not None:
                self.scalars[x] = self.others[element]
            else:
                operands = tuple(self.scalars[o] for o in x.operands)
                self.scalars[x] = x.replace(operands=operands) if operands else x
        elif element in self.arrays:
            self.blocks[x, at] = self.arrays[element].cut(margins)
        elif element is not None:
            self.blocks[x, at] = GridBlocks(self.iteration.grid, self.others[element], at, margins)
        else:
            self.blocks[x, at] = self._made(x, at, margins)

    def _made(self, x: Instruction, at: _At, margins: Margins) -> GridBlocks:
        grid = self.iteration.grid
        turned = _rolled(x)
        if x.opcode == "iota":
            return self._iota(x, at, margins)
        if turned is not None and at[turned[1]] in grid.split:
            source, dim, shift = turned
            return self.blocks[source, at].window(margins, _along(grid, at[dim], shift))
        if x.opcode == "pad":
            return self._pad(x, at, margins)
        if x.opcode == "broadcast":
            return self._broadcast(x, at, margins)
        read = [self.blocks[o, at].cut(margins) if o.shape.dims else None for o in x.operands]
        operands = tuple(self.scalars[o] if b is None else b.array for o, b in zip(x.operands, read, strict=True))
        return self._like(x, at, margins, operands, **self._attrs(x, at, margins))

    def _attrs(self, x: Instruction, at: _At, margins: Margins) -> dict[str, object]:
        """The attributes of ``x`` over blocks."""
        frame = GridBlocks(self.iteration.grid, x, at, margins)
        if x.opcode in ("concatenate", "reverse"):
            return {**x.attrs, "dimensions": tuple(frame.place(d) for d in x.attrs["dimensions"])}
        if x.opcode == "slice":
            sizes = GridBlocks.sizes(frame.grid, x.operands[0].shape.dims, at, margins)
            bounds = [(0, n, 1) for n in sizes]
            for i, b in enumerate(x.attrs["slice"]):
                if at[i] not in frame.grid.split:
                    bounds[frame.place(i)] = b
            return {"slice": tuple(bounds)}
        return dict(x.attrs)

    def _like(
        self, x: Instruction, at: _At, margins: Margins, operands: Sequence[Instruction], **attrs: object
    ) -> GridBlocks:
        """``x`` over blocks with these operands."""
        grid = self.iteration.grid
        dims = GridBlocks.sizes(grid, x.shape.dims, at, margins)
        made = Instruction(
            x.opcode, x.shape.plain.with_dims(dims), operands, attrs, metadata=x.metadata, origin=x.origin
        )
        return GridBlocks(grid, made, at, margins).of(made)

    def _broadcast(self, x: Instruction, at: _At, margins: Margins) -> GridBlocks:
        (o,) = x.operands
        if not o.shape.dims:
            return self._like(x, at, margins, (self.scalars[o],), dimensions=())
        inner = tuple(at[d] for d in x.attrs["dimensions"])
        blocks = self.blocks[o, inner].cut(margins)
        return self._like(
            x, at, margins, (blocks.array,), dimensions=self._places(x, at, margins, x.attrs["dimensions"])
        )

    def _places(self, x: Instruction, at: _At, margins: Margins, dims: Sequence[int]) -> tuple[int, ...]:
        """Dimensions of the blocks that are dimensions ``dims`` of ``x``, those of the blocks' numbers among them."""
        frame, out = GridBlocks(self.iteration.grid, x, at, margins), list[int]()
        for d in dims:
            place = frame.place(d)
            out += [place - 1, place] if at[d] in frame.grid.split else [place]
        return tuple(out)

    def _iota(self, x: Instruction, at: _At, margins: Margins) -> GridBlocks:
        d = x.attrs["iota_dimension"]
        grid = self.iteration.grid
        if at[d] not in grid.split:
            place = GridBlocks(grid, x, at, margins).place(d)
            return self._like(x, at, margins, (), iota_dimension=place)
        counted = positions(grid, at[d], margins, x)
        if x.shape.dtype.name != "s32":
            counted = counted.of(make("convert", counted.array.shape.with_dtype(x.shape.dtype), (counted.array,), x))
        if x.shape.rank == 1:
            return counted
        spread = x.replace(opcode="broadcast")
        return self._like(spread, at, margins, (counted.array,), dimensions=self._places(x, at, margins, (d,)))

    def _pad(self, x: Instruction, at: _At, margins: Margins) -> GridBlocks:
        """Shifted along split dimensions, the fill where elements come from beyond the array; padded along others."""
        grid = self.iteration.grid
        source, edges = self.blocks[x.operands[0], at], list(x.attrs["padding"])
        fill = self.scalars[x.operands[1]]
        shifted = {at[i]: edges[i][0] for i in range(len(at)) if at[i] in grid.split}
        made = source.window(margins, [shifted.get(d, 0) for d in range(len(grid.dims))])
        inside = x.operands[0]
        for i, d in enumerate(at):
            if shifted.get(d):
                mask = self._inside(d, shifted[d], margins, x)
                flat = x.replace(opcode="broadcast", shape=inside.shape.with_dtype("pred"))
                spread = self._like(
                    flat, at, margins, (mask.array,), dimensions=self._places(inside, at, margins, (i,))
                )
                fills = self._like(inside.replace(opcode="broadcast"), at, margins, (fill,), dimensions=())
                chosen = inside.replace(opcode="select", metadata=x.metadata)
                made = self._like(chosen, at, margins, (spread.array, made.array, fills.array))
        if all(e == (0, 0, 0) for e, d in zip(edges, at, strict=True) if d not in grid.split):
            return made
        padding = [(0, 0, 0)] * made.array.shape.rank
        for i, e in enumerate(edges):
            if at[i] not in grid.split:
                padding[made.place(i)] = e
        return self._like(x, at, margins, (made.array, fill), padding=tuple(padding))

    def _inside(self, dim: int, shift: int, margins: Margins, like: Instruction) -> GridBlocks:
        """Whether the element ``shift`` before a position is one of the array."""
        grid = self.iteration.grid
        where = positions(grid, dim, margins, like)
        first = shift > 0
        limit = number_of(grid, shift if first else grid.dims[dim] + shift, like)
        limits = where.of(make("broadcast", where.array.shape, (limit,), like, dimensions=()))
        shape = array_shape("pred", *where.array.shape.dims)
        direction = "GE" if first else "LT"
        return where.of(make("compare", shape, (where.array, limits.array), like, direction=direction))


def _along(grid: Grid, dim: int, shift: int) -> list[int]:
    return [shift if d == dim else 0 for d in range(len(grid.dims))]
