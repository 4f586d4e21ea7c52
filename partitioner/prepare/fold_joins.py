"""A slice of joined arrays is made of the parts that it takes: slices of a wrapped array are rolls.

``p = concatenate(u[-4:], u, u[:4])`` has other chunks than ``u``, so that every element would move to a neighbour and
back; ``p[1:1+n]`` is ``concatenate(u[-3:], u[:-3])``, which fetches three rows. A few rows that repeat an edge, or
reflect what is behind it, are rows of ``u`` too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_computation, rebuild_computations, users_of
from shardc.hlo.ir.sharding import Sharding

__all__ = ["FoldJoins"]

#: Most rows at an end that are read one by one: kernels have a part for each.
_MOST_ROWS = 7


@dataclass(frozen=True, slots=True)
class FoldJoins:
    """Slices with stride 1 of concatenations along split dimensions of which nothing else is read; along any dimensions
    where layouts are ``free``, still to be chosen."""

    free: bool = False
    name: str = "fold-joins"
    why: str = "a joined array has other chunks than its parts, and a slice of it often has the same"

    def run(self, module: Module) -> Module:
        return rebuild_computations(module, partial(_fold_all, free=self.free))


def _fold_all(computation: Computation, called: Mapping[Computation, Computation], *, free: bool) -> Computation:
    cut = _only_cut(computation)
    split = {i for i in cut if free or _is_split(i)}
    #: Slices that take something of one of them, directly or by way of others.
    through: set[Instruction] = set()
    for i in computation if split else ():
        if (_is_slice(i) or i in cut) and any(o in split or o in through for o in i.operands):
            through.add(i)
    cutter = _IntervalMaker()

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if old not in through or old.opcode != "slice":
            return None
        made = operands[0]
        for dim, (low, high, _) in enumerate(old.attrs["slice"]):
            made = cutter.cut(made, dim, low, high)
        return made if made.sharding == old.sharding else None

    return rebuild_computation(computation, change if through else None, called, {"slice"})


def _only_cut(computation: Computation) -> set[Instruction]:
    """Concatenations that are read only by slices with stride 1 and by each other."""
    if not any(i.opcode == "concatenate" for i in computation):
        return set()
    users, found = users_of(computation), set[Instruction]()
    for i in reversed(computation.instructions):
        if i.opcode == "concatenate" and i is not computation.root:
            readers = users[i]
            if readers and all(r in found or _is_slice(r) for r in readers):
                found.add(i)
    return found


def _is_slice(i: Instruction) -> bool:
    return i.opcode == "slice" and all(stride == 1 for _, _, stride in i.attrs["slice"])


def _is_split(concatenation: Instruction) -> bool:
    (dim,) = concatenation.attrs["dimensions"]
    given = concatenation.sharding
    return isinstance(given, Sharding) and bool(given.dims[dim].axes)


@dataclass(frozen=True, slots=True)
class _IntervalMaker:
    """Makes intervals of arrays, each once, of the innermost arrays that they come from."""

    made: dict[tuple[Instruction, int, int, int], Instruction] = field(default_factory=dict)
    joined: dict[tuple[int, tuple[Instruction, ...]], Instruction] = field(default_factory=dict)
    joins: dict[tuple[Instruction, int], bool] = field(default_factory=dict)

    def cut(self, x: Instruction, dim: int, low: int, high: int) -> Instruction:
        """Elements ``low`` to ``high`` of ``x`` along ``dim``."""
        if (low, high) == (0, x.shape.dims[dim]):
            return x
        key = (x, dim, low, high)
        if key not in self.made:
            self.made[key] = self._cut(x, dim, low, high)
        return self.made[key]

    def _cut(self, x: Instruction, dim: int, low: int, high: int) -> Instruction:
        if not self._joins_along(x, dim):
            return self._slice(x, dim, low, high)
        if x.opcode == "slice":
            bounds = x.attrs["slice"]
            made = self.cut(x.operands[0], dim, bounds[dim][0] + low, bounds[dim][0] + high)
            for d, (start, limit, _) in enumerate(bounds):
                made = made if d == dim else self.cut(made, d, start, limit)
            return made
        (along,) = x.attrs["dimensions"]
        joined = [row for o in x.operands for row in self._opened(o, along)]
        if along != dim:
            return self._join(x, along, [self.cut(o, dim, low, high) for o in joined])
        parts, at = [], 0
        for o in joined:
            n = o.shape.dims[dim]
            if max(low - at, 0) < min(high - at, n):
                parts.append(self.cut(o, dim, max(low - at, 0), min(high - at, n)))
            at += n
        return self._join(x, dim, parts)

    def _opened(self, x: Instruction, dim: int) -> list[Instruction]:
        """A few rows that are one row repeated, or an array's rows from last to first, one by one."""
        n = x.shape.dims[dim]
        if not 1 < n <= _MOST_ROWS:
            return [x]
        if x.opcode == "reverse" and x.attrs["dimensions"] == (dim,):
            return [self.cut(x.operands[0], dim, k, k + 1) for k in reversed(range(n))]
        kept = x.attrs["dimensions"] if x.opcode == "broadcast" else (dim,)
        if dim not in kept and list(kept) == sorted(kept):
            (row,) = x.operands
            source = row.operands[0] if row.opcode == "reshape" else row
            if source.shape.dims == tuple(1 if d == dim else size for d, size in enumerate(x.shape.dims)):
                return [source] * n
        return [x]

    def _joins_along(self, x: Instruction, dim: int) -> bool:
        """Whether ``x`` is a concatenation along ``dim``, or made of one."""
        key = (x, dim)
        if key not in self.joins:
            own = x.opcode == "concatenate" and x.attrs["dimensions"] == (dim,)
            inside = x.opcode == "concatenate" or _is_slice(x)
            self.joins[key] = own or (inside and any(self._joins_along(o, dim) for o in x.operands))
        return self.joins[key]

    def _slice(self, x: Instruction, dim: int, low: int, high: int) -> Instruction:
        """The interval as a slice of ``x``; of what ``x`` is a slice of, if it is one."""
        bounds = list(x.attrs["slice"]) if _is_slice(x) else [(0, n, 1) for n in x.shape.dims]
        bounds[dim] = (bounds[dim][0] + low, bounds[dim][0] + high, 1)
        operands = x.operands if _is_slice(x) else (x,)
        shape = x.shape.plain.with_dims(tuple(limit - start for start, limit, _ in bounds))
        return x.replace(opcode="slice", operands=operands, shape=shape, attrs={"slice": tuple(bounds)}, name="slice")

    def _join(self, like: Instruction, dim: int, parts: Sequence[Instruction]) -> Instruction:
        """``parts`` side by side; neighbours in one array are one part."""
        pieces: list[Instruction] = []
        for part in parts:
            while pieces and (both := self._adjacent(pieces[-1], part, dim)) is not None:
                pieces.pop()
                part = both
            pieces.append(part)
        if len(pieces) == 1:
            return pieces[0]
        key = (dim, tuple(pieces))
        if key not in self.joined:
            dims = pieces[0].shape.dims
            total = sum(p.shape.dims[dim] for p in pieces)
            shape = like.shape.plain.with_dims((*dims[:dim], total, *dims[dim + 1 :]))
            self.joined[key] = like.replace(operands=key[1], shape=shape)
        return self.joined[key]

    def _adjacent(self, a: Instruction, b: Instruction, dim: int) -> Instruction | None:
        """The one interval that two are, the second where the first ends."""
        (x, low, high), (y, start, end) = _interval(a, dim), _interval(b, dim)
        return self.cut(x, dim, low, end) if x is y and high == start else None


def _interval(x: Instruction, dim: int) -> tuple[Instruction, int, int]:
    """The array that ``x`` is an interval of along ``dim``, and which."""
    if _is_slice(x):
        (source,) = x.operands
        bounds = x.attrs["slice"]
        if all(b == (0, n, 1) for d, (b, n) in enumerate(zip(bounds, source.shape.dims, strict=True)) if d != dim):
            return source, bounds[dim][0], bounds[dim][1]
    return x, 0, x.shape.dims[dim]
