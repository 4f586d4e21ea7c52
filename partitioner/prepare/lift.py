"""Values over a region of an array, computed at the array's own positions: shards then read their neighbours at most.

``u[2:] + u[:-2]``, made to be put into ``v[1:-1]``, has fewer elements than ``u`` and ``v``, so that its chunks are
others. As ``shift(u, -1) + shift(u, 1)`` over all of ``v``, right in the region and anything outside of it, it is cut
where ``v`` is cut. What is *lifted* so is arithmetic, and what passes the region's dimensions on, down to the slices
(or gathers at the region's positions) of whole arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import make
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.opset import OPS
from shardc.hlo.ir.sharding import DimSharding, Sharding
from shardc.partitioner.prepare.known_places import known_vectors
from shardc.sharding.axes.sub_axes import overlaps

__all__ = ["MOSTLY", "At", "Embedding", "Lift", "keep_units", "scalar"]


_Part = TypeVar("_Part")


@dataclass(frozen=True, slots=True)
class Embedding:
    """Where the elements along one dimension are in an array: along dimensions of ``sizes`` that are split as
    ``splits``, element i at position ``first + i`` of the only one, or at vector i of ``places``, s64 in memory."""

    sizes: tuple[int, ...]
    splits: tuple[DimSharding, ...]
    first: int = 0
    places: bytes = b""


#: A part of so much of a dimension is taken after what it is cut from has moved: other parts of it read that too.
MOSTLY = 3 / 4

#: Dimensions of a value and where they go, in order.
At = tuple[tuple[int, Embedding], ...]


def _shifted(at: At, d: int) -> int:
    """The number of dimension ``d`` after dimensions before it became several."""
    return d + sum(len(e.sizes) - 1 for q, e in at if q < d)


def _shifted_all(at: At, dims: Iterable[int]) -> tuple[int, ...]:
    """Numbers of dimensions, those that become several with all of theirs."""
    taken = dict(at)
    return tuple(_shifted(at, d) + k for d in dims for k in range(len(taken[d].sizes) if d in taken else 1))


def _replaced(at: At, parts: Sequence[_Part], new: Callable[[Embedding], Sequence[_Part]]) -> tuple[_Part, ...]:
    taken = dict(at)
    return tuple(x for d, part in enumerate(parts) for x in (new(taken[d]) if d in taken else (part,)))


def _mapped(at: At, to: Mapping[int, int]) -> At:
    """The same of dimensions that are called otherwise elsewhere; those that are not there do not count."""
    return tuple(sorted(((to[d], e) for d, e in at if d in to), key=lambda pair: pair[0]))


def scalar(value: np.ndarray, like: Instruction, mesh: Mesh) -> Instruction:
    """A constant without dimensions."""
    literal = Literal(value)
    return make("constant", literal.shape, (), like, literal=literal).replace(sharding=Sharding.replicate(mesh, 0))


@dataclass(slots=True)
class Lift:
    """Lifts values of one computation; what was lifted once is the same instruction the next time."""

    mesh: Mesh
    #: Zeros in other places: what is there is never read from other devices.
    alone: bool = False
    _known: dict[tuple[Instruction, At], Instruction | None] = field(default_factory=dict)
    #: Lifted values that are made of slices (or gathers) of whole arrays, and those that are made of nothing.
    _gaining: set[tuple[Instruction, At]] = field(default_factory=set)
    _made: set[tuple[Instruction, At]] = field(default_factory=set)

    def __call__(self, value: Instruction, at: At) -> Instruction | None:
        """``value`` with dimensions as ``at`` says, anything in other places; None where it cannot be."""
        stack = [(value, at)]
        while stack:
            key = stack[-1]
            missing = [] if key in self._known else self._missing(*key)
            if missing:
                stack += missing
                continue
            stack.pop()
            if key not in self._known:
                self._known[key] = self._lifted(*key)
        return self._known[value, at]

    def gains(self, value: Instruction, at: At) -> bool:
        """Whether a lifted value is made of slices or gathers of whole arrays, rather than of itself put in place."""
        return (value, at) in self._gaining

    def _missing(self, value: Instruction, at: At) -> list[tuple[Instruction, At]]:
        """What must be lifted before it."""
        asked = _operands_at(value, at)
        pairs = zip(value.operands, asked or (), strict=False)
        return [(o, a) for o, a in pairs if a and (o, a) not in self._known]

    def _lifted(self, value: Instruction, at: At) -> Instruction | None:
        """An operation that no slice goes into is done where it is, and its result put in place."""
        key, asked = (value, at), _operands_at(value, at)
        if value.opcode == "iota" and value.attrs["iota_dimension"] in dict(at):
            return self._counted(value, at)
        operands = [self._known[o, a] if a else o for o, a in zip(value.operands, asked or (), strict=False)]
        known = [o for o in operands if o is not None]
        if asked is None or len(known) != len(operands):
            return self._pad_to_place(value, at)
        lifted = [(o, a) for o, a in zip(value.operands, asked, strict=True) if a]
        cuts = value.opcode == "slice" and not all(_is_whole(value, d) for d, _ in at)
        cuts = cuts or (value.opcode == "gather" and not {d for d, _ in at} <= set(value.attrs["offset_dims"]))
        if cuts or any(k in self._gaining for k in lifted):
            self._gaining.add(key)
        elif all(k in self._made for k in lifted):
            self._made.add(key)
        else:
            return self._pad_to_place(value, at)
        if value.opcode == "slice":
            return self._sliced(value, at, known[0])
        return self._ordered(value, at, known[0]) if cuts else self._again(value, at, known)

    def _again(self, value: Instruction, at: At, operands: Sequence[Instruction]) -> Instruction:
        """The operation itself over more elements."""
        shape = value.shape.with_dims(_replaced(at, value.shape.dims, lambda e: e.sizes))
        attrs = _ATTRS[value.opcode](value, at) if value.opcode in _ATTRS else {}
        return value.replace(
            operands=tuple(operands), shape=shape, attrs={**value.attrs, **attrs}, sharding=self._sharding(value, at)
        )

    def _ordered(self, value: Instruction, at: At, x: Instruction) -> Instruction:
        """A gather at the region's positions: all that it is taken from."""
        order = _order(value, at)
        dims = tuple(x.shape.dims[d] for d in order)
        made = make("transpose", x.shape.with_dims(dims), (x,), value, dimensions=order)
        return made.replace(sharding=self._sharding(value, at))

    def _sliced(self, value: Instruction, at: At, x: Instruction) -> Instruction | None:
        """A slice by what it is taken from, moved to where the region is."""
        taken, edges = dict(at), [(0, 0, 0)] * x.shape.rank
        for d, e in at:
            if not _is_whole(value, d):
                low = e.first - value.attrs["slice"][d][0]
                edges[d] = (low, e.sizes[0] - value.operands[0].shape.dims[d] - low, 0)
        if self.alone:
            return self._join(self._cut(value, at, x), value, at)
        if any(n + min(low, 0) + min(high, 0) <= 0 for n, (low, high, _) in zip(x.shape.dims, edges, strict=True)):
            return self._pad_to_place(value, at)
        into = [taken.get(d) for d in range(x.shape.rank)]
        others = [d for d in range(value.shape.rank) if d not in taken]
        kept, given = (math.prod(s.shape.dims[d] for d in others) for s in (value, value.operands[0]))
        if kept < MOSTLY * given:
            return self._pad(self._cut(value, at, x), tuple(edges), value, into)
        return self._cut(value, at, self._pad(x, tuple(edges), value, into))

    def _join(self, x: Instruction, value: Instruction, at: At) -> Instruction:
        """Of ``x`` only what is in the region, between zeros."""
        zero = scalar(np.zeros((), x.shape.dtype.numpy), value, self.mesh)
        for d, e in at:
            if _is_whole(value, d):
                continue
            bounds = [(0, n, 1) for n in x.shape.dims]
            bounds[d] = value.attrs["slice"][d]
            dims = [*x.shape.dims]
            pieces: list[Instruction] = []
            for n in (e.first, value.shape.dims[d], e.sizes[0] - e.first - value.shape.dims[d]):
                dims[d] = n
                shape = x.shape.with_dims(tuple(dims))
                if len(pieces) == 1:
                    pieces.append(make("slice", shape, (x,), value, slice=tuple(bounds)))
                else:
                    pieces.append(make("broadcast", shape, (zero,), value, dimensions=()))
            dims[d] = e.sizes[0]
            sharding = self._sharding(x, ((d, e),))
            parts = [p.replace(sharding=sharding) for p in pieces if p.shape.size]
            joined = make("concatenate", x.shape.with_dims(tuple(dims)), parts, value, dimensions=(d,))
            x = joined.replace(sharding=sharding)
        return x

    def _cut(self, value: Instruction, at: At, x: Instruction) -> Instruction:
        """``x`` between the bounds of a slice along the dimensions that stay as they are."""
        bounds, taken = [(0, n, 1) for n in x.shape.dims], dict(at)
        dims = list(x.shape.dims)
        for d, (n, bound) in enumerate(zip(value.shape.dims, value.attrs["slice"], strict=True)):
            if d not in taken:
                bounds[_shifted(at, d)], dims[_shifted(at, d)] = bound, n
        if tuple(dims) == x.shape.dims:
            return x
        made = make("slice", x.shape.with_dims(tuple(dims)), (x,), value, slice=tuple(bounds))
        return made.replace(sharding=x.sharding)

    def _counted(self, value: Instruction, at: At) -> Instruction | None:
        """A count along the region: the array's own, less the region's first position."""
        e, dtype = dict(at)[value.attrs["iota_dimension"]], value.shape.dtype
        if e.places or dtype.bits < 32:
            return self._pad_to_place(value, at)
        self._made.add((value, at))
        whole = self._again(value, at, ())
        first = scalar(np.asarray(e.first, dtype.numpy), value, self.mesh)
        wide = make("broadcast", whole.shape, (first,), value, dimensions=()).replace(sharding=whole.sharding)
        return make("subtract", whole.shape, (whole, wide), value).replace(sharding=whole.sharding)

    def _pad_to_place(self, value: Instruction, at: At) -> Instruction | None:
        """The value itself between zeros."""
        edges, taken = [(0, 0, 0)] * value.shape.rank, dict(at)
        for d, e in at:
            if e.places:
                return None
            edges[d] = (e.first, e.sizes[0] - e.first - value.shape.dims[d], 0)
        return self._pad(value, tuple(edges), value, [taken.get(d) for d in range(value.shape.rank)])

    def _pad(
        self, x: Instruction, edges: tuple[tuple[int, int, int], ...], like: Instruction, into: list[Embedding | None]
    ) -> Instruction:
        if not any(map(any, edges)):
            return x
        dims = tuple(n + low + high for n, (low, high, _) in zip(x.shape.dims, edges, strict=True))
        zero = scalar(np.zeros((), x.shape.dtype.numpy), like, self.mesh)
        made = make("pad", x.shape.with_dims(dims), (x, zero), like, padding=edges)
        at = tuple((d, e) for d, e in enumerate(into) if e is not None)
        return made.replace(sharding=self._sharding(x, at))

    def _sharding(self, value: Instruction, at: At) -> Sharding:
        """As the value lies, but as the array along the region's dimensions."""
        given = value.sharding
        assert isinstance(given, Sharding)
        used = [a for _, e in at for s in e.splits for a in s.axes]
        kept = [
            DimSharding() if any(overlaps(a, b, self.mesh) for a in d.axes for b in used) else d for d in given.dims
        ]
        return replace(given, dims=_replaced(at, kept, lambda e: e.splits))


# -- rows of a matrix, which are vectors ---------------------------------------------------------------------------

#: Arithmetic on vectors is followed so deep to where they were rows.
_DEEPEST = 40


def keep_units(value: Instruction) -> Instruction:
    """A reshape that only adds dimensions of size 1, said of what had them: ``a[1:2] + b[1:2]`` in place of
    ``(a[1] + b[1])[None]``."""
    if value.opcode != "reshape":
        return value
    inner, units = value.operands[0], []
    rest = list(reversed(inner.shape.dims))
    for d, n in enumerate(value.shape.dims):
        if rest and rest[-1] == n:
            rest.pop()
        else:
            units.append(d)
    if rest or not units or any(value.shape.dims[d] != 1 for d in units):
        return value
    return _with_units(inner, tuple(units), _DEEPEST)


def _with_units(value: Instruction, units: tuple[int, ...], depth: int) -> Instruction:
    """``value`` with more dimensions, those with the numbers ``units``, of size 1."""
    sizes, given = iter(value.shape.dims), value.sharding
    rank = value.shape.rank + len(units)
    dims = tuple(1 if d in units else next(sizes) for d in range(rank))
    if value.opcode == "reshape" and value.operands[0].shape.dims == dims:
        return value.operands[0]
    assert isinstance(given, Sharding)
    splits = iter(given.dims)
    sharding = replace(given, dims=tuple(DimSharding() if d in units else next(splits) for d in range(rank)))
    fields = {"shape": value.shape.with_dims(dims), "sharding": sharding}
    if value.opcode == "broadcast" and not value.operands[0].shape.rank:
        return value.replace(**fields)
    alike = all(o.shape.dims in (value.shape.dims, ()) for o in value.operands)
    if depth and alike and value.shape.rank and is_arithmetic(value):
        operands = (_with_units(o, units, depth - 1) if o.shape.rank else o for o in value.operands)
        return value.replace(operands=tuple(operands), **fields)
    return make("reshape", value.shape.with_dims(dims), (value,), value).replace(sharding=sharding)


def is_arithmetic(value: Instruction) -> bool:
    """Whether each element is made of one element of each operand."""
    return OPS[value.opcode].family == "elementwise" and value.opcode not in _NOT_LIFTED


# -- what operands must be lifted like -----------------------------------------------------------------------------

#: Elementwise by family, but not one element from one element.
_NOT_LIFTED = frozenset({"map", "stochastic-convert", "copy"})


def _operands_at(value: Instruction, at: At) -> Sequence[At] | None:
    """What each operand must be lifted like; None for a value that cannot be computed elsewhere than it is."""
    given = value.sharding
    if not value.shape.is_array or not isinstance(given, Sharding) or given.unreduced or given.mesh.is_maximal:
        return None
    if value.opcode in _OPERANDS:
        return _OPERANDS[value.opcode](value, at)
    if not is_arithmetic(value) or any(o.shape.rank and o.shape.dims != value.shape.dims for o in value.operands):
        return None
    return [at if o.shape.rank else () for o in value.operands]


def _broadcast(value: Instruction, at: At) -> Sequence[At]:
    return [_mapped(at, {d: n for n, d in enumerate(value.attrs["dimensions"])})]


def _transpose(value: Instruction, at: At) -> Sequence[At]:
    return [_mapped(at, dict(enumerate(value.attrs["dimensions"])))]


def _reshape(value: Instruction, at: At) -> Sequence[At] | None:
    """Dimensions that the operand has as well, with as many elements before them."""
    found, x = {}, value.operands[0].shape.dims
    for d, _ in at:
        before, n = math.prod(value.shape.dims[:d]), value.shape.dims[d]
        same = [k for k, m in enumerate(x) if m == n and math.prod(x[:k]) == before]
        if not same or n == 1:
            return None
        found[d] = same[0]
    return [_mapped(at, found)]


def _constant(value: Instruction, at: At) -> Sequence[At] | None:
    return [] if value.attrs["literal"].is_splat else None


def _iota(value: Instruction, at: At) -> Sequence[At] | None:
    return None if value.attrs["iota_dimension"] in dict(at) else []


def _slice(value: Instruction, at: At) -> Sequence[At] | None:
    """Whole dimensions are passed on; those that are cut are read from the whole."""
    if any(not _is_whole(value, d) and (e.places or value.attrs["slice"][d][2] != 1) for d, e in at):
        return None
    return [tuple((d, e) for d, e in at if _is_whole(value, d))]


def _is_whole(value: Instruction, d: int) -> bool:
    return tuple(value.attrs["slice"][d]) == (0, value.operands[0].shape.dims[d], 1)


def _pad_operands(value: Instruction, at: At) -> Sequence[At] | None:
    return None if any(any(value.attrs["padding"][d]) for d, _ in at) else [at, ()]


def _along_others(value: Instruction, at: At) -> Sequence[At] | None:
    """Of a join, or a reversal: other dimensions."""
    return None if any(d in value.attrs["dimensions"] for d, _ in at) else [at for _ in value.operands]


def _gather(value: Instruction, at: At) -> Sequence[At] | None:
    """Windows' dimensions that are whole are passed on; one of positions is read from the whole."""
    if value.attrs.get("operand_batching_dims"):
        return None
    if len(at) == 1 and at[0][1].places:
        d, e = at[0]
        if d not in value.attrs["offset_dims"]:
            return [(), ()] if _reads_at(value, d, e) else None
    windows = _windows(value)
    x, sizes = value.operands[0].shape.dims, value.attrs["slice_sizes"]
    if any(d not in windows or sizes[windows[d]] != x[windows[d]] for d, _ in at):
        return None
    return [_mapped(at, windows), ()]


def _windows(value: Instruction) -> dict[int, int]:
    """Dimensions of the operand by those of the result that windows go along."""
    kept = [d for d in range(value.operands[0].shape.rank) if d not in value.attrs["collapsed_slice_dims"]]
    return dict(zip(value.attrs["offset_dims"], kept, strict=True))


def _reads_at(value: Instruction, d: int, e: Embedding) -> bool:
    """Whether a gather takes the elements at the region's positions, in their order."""
    x, indices = value.operands
    a = value.attrs
    dims = tuple(a["start_index_map"])
    if dims != tuple(a["collapsed_slice_dims"]) or tuple(x.shape.dims[k] for k in dims) != e.sizes:
        return False
    whole = all(n == (1 if k in dims else x.shape.dims[k]) for k, n in enumerate(a["slice_sizes"]))
    found = known_vectors(indices, a["index_vector_dim"])
    return whole and found is not None and found.tobytes() == e.places


def _order(value: Instruction, at: At) -> tuple[int, ...]:
    """Dimensions of a gather's operand in the order of the lifted result: the indexed ones where positions were."""
    ((d, _),) = at
    windows = _windows(value)
    return tuple(k for out in range(value.shape.rank)
                 for k in (value.attrs["start_index_map"] if out == d else (windows[out],)))  # fmt: skip


_OPERANDS: Mapping[str, Callable[[Instruction, At], Sequence[At] | None]] = {
    "broadcast": _broadcast,
    "transpose": _transpose,
    "reshape": _reshape,
    "constant": _constant,
    "iota": _iota,
    "slice": _slice,
    "pad": _pad_operands,
    "concatenate": _along_others,
    "reverse": _along_others,
    "gather": _gather,
}

# -- attributes of what is lifted ----------------------------------------------------------------------------------


def _transposed(value: Instruction, at: At) -> dict[str, object]:
    inner = _transpose(value, at)[0]
    return {"dimensions": _shifted_all(inner, value.attrs["dimensions"])}


def _gathered(value: Instruction, at: At) -> dict[str, object]:
    a = value.attrs
    inner = _mapped(at, _windows(value))
    return {
        "offset_dims": _shifted_all(at, a["offset_dims"]),
        "collapsed_slice_dims": _shifted_all(inner, a["collapsed_slice_dims"]),
        "start_index_map": _shifted_all(inner, a["start_index_map"]),
        "slice_sizes": _replaced(inner, a["slice_sizes"], lambda e: e.sizes),
    }


_ATTRS: Mapping[str, Callable[[Instruction, At], dict[str, object]]] = {
    "broadcast": lambda v, at: {"dimensions": _shifted_all(at, v.attrs["dimensions"])},
    "transpose": _transposed,
    "constant": lambda v, at: {"literal": _splat(v, at)},
    "iota": lambda v, at: {"iota_dimension": _shifted(at, v.attrs["iota_dimension"])},
    "pad": lambda v, at: {"padding": _replaced(at, v.attrs["padding"], lambda e: [(0, 0, 0)] * len(e.sizes))},
    "concatenate": lambda v, at: {"dimensions": _shifted_all(at, v.attrs["dimensions"])},
    "reverse": lambda v, at: {"dimensions": _shifted_all(at, v.attrs["dimensions"])},
    "gather": _gathered,
}


def _splat(value: Instruction, at: At) -> Literal:
    shape = value.shape.with_dims(_replaced(at, value.shape.dims, lambda e: e.sizes))
    return Literal.full(shape, value.attrs["literal"].splat)
