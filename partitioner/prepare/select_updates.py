"""An update of a known region is a selection by position: shards read their neighbours' border, and nothing else moves.

``u[1:-1] += f(u)``, ``u.at[1:-1].set(y)`` and ``u[mask] = y`` with a known mask become ``select(inside, y, u)``, where
``y`` is computed at the positions of ``u`` (`lift.py`). As updates, the array and what is put into it are cut into
chunks that do not match, and each shard is given all of what is put.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shardc.hlo.ir.ir import (
    Change,
    Computation,
    Instruction,
    Module,
    rebuild_computation,
    rebuild_computations,
)
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import make
from shardc.hlo.ir.reducers import reducer_kind
from shardc.hlo.ir.sharding import DimSharding, Sharding
from shardc.hlo.ir.types import Shape, array_shape
from shardc.partitioner.emit.emitter import COMBINERS
from shardc.partitioner.prepare.known_places import Edges, edges_of_read, edges_of_update, known_vectors
from shardc.partitioner.prepare.lift import MOSTLY, At, Embedding, Lift, keep_units, scalar

__all__ = ["SelectUpdates"]

_READS = frozenset({"dynamic-slice", "gather"})
_UPDATES = frozenset({"dynamic-update-slice", "scatter", "pad"})

#: Combiners of old and new elements.
_COMBINERS = frozenset(("add", "multiply", "maximum", "minimum", "and", "or"))

#: A region of a smaller share of its array is written as it is: sending it everywhere is less than another pass.
_LEAST_SHARE = 1 / 8


@dataclass(frozen=True, slots=True)
class SelectUpdates:
    """Updates, reads and pads at known places that cut a split dimension, and scatters to known elements of one."""

    name: str = "select-updates"
    why: str = "a region at a known place needs no search for the shards that it touches"

    def run(self, module: Module) -> Module:
        return rebuild_computations(
            module, lambda c, called: rebuild_computation(c, _selecting(), called, _READS | _UPDATES)
        )


def _selecting() -> Change:
    lifts: dict[object, tuple[Lift, Lift]] = {}

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        given = old.sharding
        if not isinstance(given, Sharding) or given.mesh.is_maximal or not old.shape.size:
            return None
        if old.opcode in _READS:
            return _sliced(old, operands, given)
        lift, alone = lifts.setdefault(given.mesh, (Lift(given.mesh), Lift(given.mesh, alone=True)))
        update = _KnownUpdate(old, operands, given, lift, alone)
        if old.opcode == "pad":
            return update.around()
        return update.region() or (update.elements() if old.opcode == "scatter" else None)

    return change


@dataclass(frozen=True, slots=True)
class _KnownUpdate:
    """An update with its ``operands``, its result split as ``sharding``."""

    old: Instruction
    operands: tuple[Instruction, ...]
    sharding: Sharding
    lift: Lift
    alone: Lift

    def region(self) -> Instruction | None:
        """Of one window at a known place."""
        old, x = self.old, self.operands[0]
        combiner = self._combiner()
        if combiner is None or old.shape.is_tuple:
            return None
        edges = edges_of_update(old, self.operands)
        split = [] if edges is None else [d for d, e in enumerate(edges) if any(e) and self._is_split(d)]
        if edges is None or not split:
            return None
        window = keep_units(_window(old, self.operands, self.sharding))
        if not combiner and window.shape.size < _LEAST_SHARE * old.shape.size:
            return self._write(x, self._in_place(window, edges, split), edges)
        split = [d for d, e in enumerate(edges) if d in split or (any(e) and sum(e) < (1 - MOSTLY) * old.shape.dims[d])]
        new = self.lift(window, self._at(edges, split))
        assert new is not None, "a window can be put where it belongs"
        kept = tuple((0, 0) if d in split else e for d, e in enumerate(edges))
        part = self._part(x, kept)
        made = self._select(self._inside(edges, split, part), self._combine(combiner, part, new), part)
        return made if part is x else self._write(x, made, kept)

    def _in_place(self, window: Instruction, edges: Edges, split: Sequence[int]) -> Instruction:
        """A small window as a slice of what it is at the array's positions, from which shards take their part of it."""
        at = self._at(edges, split)
        new = self.alone(window, at)
        if new is None or not self.alone.gains(window, at):
            return window
        return self._part(new, tuple(e if d in split else (0, 0) for d, e in enumerate(edges)))

    def elements(self) -> Instruction | None:
        """Of elements at known positions, each of which is written once."""
        old, a = self.old, self.old.attrs
        combiner = self._combiner()
        dims = tuple(a["scatter_dims_to_operand_dims"])
        if combiner is None or len(self.operands) != 3 or a.get("input_batching_dims"):
            return None
        x, indices, updates = self.operands
        batch = [d for d in range(updates.shape.rank) if d not in a["update_window_dims"]]
        if len(batch) != 1 or tuple(a["inserted_window_dims"]) != dims or not any(map(self._is_split, dims)):
            return None
        others = [d for d in range(old.shape.rank) if d not in dims]
        if any(updates.shape.dims[u] != x.shape.dims[d] for u, d in zip(a["update_window_dims"], others, strict=True)):
            return None
        mask = _mask(known_vectors(indices, a["index_vector_dim"]), tuple(x.shape.dims[d] for d in dims))
        if mask is None:
            return None
        places, chosen = mask
        sizes, splits = chosen.shape, tuple(self.sharding.dims[d] for d in dims)
        new = self.lift(updates, ((batch[0], Embedding(sizes, splits, places=places)),))
        if new is None:
            return None
        order: list[int] = []
        windows = iter(others)
        for u in range(updates.shape.rank):
            order += dims if u == batch[0] else [next(windows)]
        moved = tuple(order.index(d) for d in range(old.shape.rank))
        if moved != tuple(range(len(moved))):
            new = make("transpose", x.shape.plain, (new,), old, dimensions=moved).replace(sharding=self.sharding)
        literal = make("constant", array_shape("pred", *sizes), (), old, literal=Literal(chosen))
        inside = self._broadcast(literal.replace(sharding=replace(self.sharding, dims=splits)), dims, x)
        return self._select(inside, self._combine(combiner, x, new), x)

    def around(self) -> Instruction | None:
        """A pad around what can be computed at its result's positions."""
        old, (x, fill) = self.old, self.operands
        padding = old.attrs["padding"]
        if x.opcode in ("parameter", "constant") or any(low < 0 or high < 0 or n for low, high, n in padding):
            return None
        split = [d for d, e in enumerate(padding) if any(e) and self._is_split(d)]
        if not split or not x.shape.size:
            return None
        edges = tuple((low, high) for low, high, _ in padding)
        at = self._at(edges, split)
        new = self.lift(x, at)
        if new is None or not self.lift.gains(x, at):
            return None
        part = make("broadcast", new.shape, (fill,), old, dimensions=()).replace(sharding=new.sharding)
        made = self._select(self._inside(edges, split, part), new, part)
        if made.shape.dims == old.shape.dims:
            return made
        rest = tuple((0, 0, 0) if d in split else e for d, e in enumerate(padding))
        return old.replace(operands=(made, fill), attrs={**old.attrs, "padding": rest})

    # -- parts -----------------------------------------------------------------------------------------------------

    def _combiner(self) -> str | None:
        """What makes an element of the old and the new one: empty where it is the new one; None: not known."""
        if self.old.opcode == "dynamic-update-slice":
            return ""
        body: Computation = self.old.attrs["to_apply"]
        if len(body.parameters) == 2 and body.root is body.parameters[1]:
            return ""
        kind = reducer_kind(body)
        combiner = COMBINERS.get(kind, kind)
        return combiner if combiner in _COMBINERS else None

    def _is_split(self, d: int) -> bool:
        x = self.operands[0].sharding
        return bool(self.sharding.dims[d].axes) or (
            self.old.opcode != "pad" and isinstance(x, Sharding) and bool(x.dims[d].axes)
        )

    def _at(self, edges: Edges, split: Sequence[int]) -> At:
        dims, sizes = self.sharding.dims, self.old.shape.dims
        return tuple((d, Embedding((sizes[d],), (dims[d],), edges[d][0])) for d in split)

    def _part(self, x: Instruction, edges: Edges) -> Instruction:
        """``x`` without its edges."""
        if not any(map(any, edges)):
            return x
        bounds = tuple((low, n - high, 1) for n, (low, high) in zip(x.shape.dims, edges, strict=True))
        dims = tuple(stop - start for start, stop, _ in bounds)
        return make("slice", x.shape.with_dims(dims), (x,), self.old, slice=bounds).replace(sharding=self._layout)

    def _write(self, x: Instruction, window: Instruction, edges: Edges) -> Instruction:
        """``x`` with ``window`` between the edges."""
        starts = [scalar(np.array(low, np.int32), self.old, self.sharding.mesh) for low, _ in edges]
        return make("dynamic-update-slice", self.old.shape, (x, window, *starts), self.old).replace(
            sharding=self.sharding
        )

    def _inside(self, edges: Edges, split: Sequence[int], like: Instruction) -> Instruction:
        """Whether each element of ``like`` is in the region, along the ``split`` dimensions."""
        found: Instruction | None = None
        for d in split:
            n, (low, high) = self.old.shape.dims[d], edges[d]
            own = replace(self.sharding, dims=(self.sharding.dims[d],), unreduced=())
            place = make("iota", array_shape("s32", n), (), self.old, iota_dimension=0).replace(sharding=own)
            for limit, direction in ((low, "GE"), (n - high, "LT")):
                if limit not in (0, n):
                    bound = scalar(np.array(limit, np.int32), self.old, own.mesh)
                    bounds = make("broadcast", place.shape, (bound,), self.old, dimensions=()).replace(sharding=own)
                    made = make("compare", array_shape("pred", n), (place, bounds), self.old, direction=direction)
                    wide = self._broadcast(made.replace(sharding=own), (d,), like)
                    found = wide if found is None else self._make("and", wide.shape, found, wide)
        assert found is not None
        return found

    def _broadcast(self, x: Instruction, dims: Sequence[int], like: Instruction) -> Instruction:
        shape = array_shape("pred", *like.shape.dims)
        made = make("broadcast", shape, (x,), self.old, dimensions=tuple(dims))
        return made.replace(sharding=self._layout)

    def _select(self, mask: Instruction, new: Instruction, old: Instruction) -> Instruction:
        return self._make("select", new.shape.plain, mask, new, old)

    def _combine(self, combiner: str, old: Instruction, new: Instruction) -> Instruction:
        return self._make(combiner, new.shape.plain, old, new) if combiner else new

    def _make(self, opcode: str, shape: Shape, *operands: Instruction) -> Instruction:
        return make(opcode, shape, operands, self.old).replace(sharding=self._layout)

    @property
    def _layout(self) -> Sharding:
        return replace(self.sharding, unreduced=())


def _sliced(old: Instruction, operands: tuple[Instruction, ...], sharding: Sharding) -> Instruction | None:
    """A read of one window at a known place that cuts a split dimension, as a slice."""
    x = operands[0]
    if not isinstance(x.sharding, Sharding) or not x.shape.size:
        return None
    edges = edges_of_read(old, operands)
    if edges is None or not any(any(e) and s.axes for e, s in zip(edges, x.sharding.dims, strict=True)):
        return None
    bounds = tuple((low, n - high, 1) for n, (low, high) in zip(x.shape.dims, edges, strict=True))
    kept = iter(old.attrs.get("offset_dims", range(old.shape.rank)))
    taken = [None if d in old.attrs.get("collapsed_slice_dims", ()) else next(kept) for d in range(x.shape.rank)]
    dims = tuple(DimSharding() if d is None else sharding.dims[d] for d in taken)
    shape = x.shape.with_dims(tuple(stop - start for start, stop, _ in bounds))
    part = make("slice", shape, (x,), old, slice=bounds).replace(sharding=replace(sharding, dims=dims))
    if shape.dims == old.shape.dims:
        return part
    return make("reshape", old.shape.plain, (part,), old).replace(sharding=sharding)


def _window(old: Instruction, operands: Sequence[Instruction], sharding: Sharding) -> Instruction:
    """What is written, with the array's dimensions."""
    inserted = old.attrs.get("inserted_window_dims", ())
    updates = operands[1 if old.opcode == "dynamic-update-slice" else 2]
    if not inserted:
        return updates
    given = updates.sharding.dims if isinstance(updates.sharding, Sharding) else (DimSharding(()),) * updates.shape.rank
    parts = iter(zip(updates.shape.dims, given, strict=True))
    dims, split = zip(
        *((1, DimSharding(())) if d in inserted else next(parts) for d in range(old.shape.rank)), strict=True
    )
    reshaped = make("reshape", updates.shape.with_dims(dims), (updates,), old)
    return reshaped.replace(sharding=Sharding(sharding.mesh, split))


def _mask(vectors: np.ndarray | None, sizes: tuple[int, ...]) -> tuple[bytes, np.ndarray] | None:
    """Positions as `Embedding` has them and where they are; None where they are not known, twice, or outside."""
    if vectors is None or vectors.shape[1] != len(sizes) or (vectors < 0).any() or (vectors >= np.array(sizes)).any():
        return None
    flat = np.ravel_multi_index(tuple(vectors.T), sizes)
    chosen = np.zeros(math.prod(sizes), bool)
    chosen[flat] = True
    if np.count_nonzero(chosen) != len(flat):
        return None
    return vectors.tobytes(), chosen.reshape(sizes)
