"""ragged-dot and scaled-dot as ordinary dots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from shardc.compiler.lower.expand.ops.ragged_blocks import pays_in_blocks, ragged_in_blocks
from shardc.hlo.ir.build import binary_computation
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.operations import Operations
from shardc.hlo.ir.types import Shape, array_shape

__all__ = ["ROWS"]


#: Dimensions of the left side, and of the right one.
_Sides = Sequence[Sequence[int]]


class _Ragged:
    """The dimension numbers of a ragged-dot, and where its groups begin and end."""

    def __init__(self, i: Instruction) -> None:
        a = i.attrs
        self.i = i
        self.p = Operations(i)
        self.lhs, self.rhs, sizes = self.p.parameters
        self.contract = (tuple(a.get("lhs_contracting_dims", ())), tuple(a.get("rhs_contracting_dims", ())))
        self.batch = (tuple(a.get("lhs_batch_dims", ())), tuple(a.get("rhs_batch_dims", ())))
        self.ragged: int = a["lhs_ragged_dims"][0]
        self.group: tuple[int, ...] = tuple(a.get("rhs_group_dims", ()))
        taken = (*self.batch[0], *self.contract[0])
        self.free = tuple(d for d in range(self.lhs.shape.rank) if d not in taken)
        role = next(dims for dims in (self.batch[0], self.contract[0], self.free) if self.ragged in dims)
        before = role[: role.index(self.ragged)]
        prefix = before if role is self.batch[0] else (*self.batch[0], *before)
        #: The lhs dimensions that the leading dimensions of the group sizes belong to.
        self.prefix = prefix[: sizes.shape.rank - 1]
        self.starts, self.ends = self._bounds(self.p.convert(sizes, "s64"))

    @property
    def groups(self) -> int:
        return self.ends.shape.dims[-1]

    def _bounds(self, sizes: Instruction) -> tuple[Instruction, Instruction]:
        p = self.p
        n = sizes.shape.rank
        dims = (*sizes.shape.dims, sizes.shape.dims[-1])
        counted = p.compare("LE", p.iota("s64", dims, n), p.iota("s64", dims, n - 1))
        each = p.spread(sizes, dims, (*range(n - 1), n))
        each = p.op("select", counted, each, p.full(0, each.shape))
        zero, add = p.full(0, array_shape("s64")), binary_computation("add", "s64")
        ends = p.op("reduce", each, zero, dimensions=(n,), to_apply=add)
        return p.op("subtract", ends, sizes), ends

    def inside(self, dims: tuple[int, ...], ragged: int, group: int, prefix: tuple[int, ...]) -> Instruction:
        """Whether, in an array of ``dims``, the position along ``ragged`` is in the group that ``group`` counts."""
        p = self.p
        position = p.iota("s64", dims, ragged)
        starts, ends = (p.spread(x, dims, (*prefix, group)) for x in (self.starts, self.ends))
        return p.op("and", p.compare("GE", position, starts), p.compare("LT", position, ends))

    def dot(self, lhs: Instruction, rhs: Instruction, contract: _Sides, batch: _Sides) -> Instruction:
        free = [
            tuple(n for d, n in enumerate(x.shape.dims) if d not in c and d not in b)
            for x, c, b in zip((lhs, rhs), contract, batch, strict=True)
        ]
        dims = (*(lhs.shape.dims[d] for d in batch[0]), *free[0], *free[1])
        return self.p.op(
            "dot",
            lhs,
            rhs,
            shape=Shape(self.i.shape.dtype, dims),
            lhs_contracting_dims=contract[0],
            rhs_contracting_dims=contract[1],
            lhs_batch_dims=batch[0],
            rhs_batch_dims=batch[1],
        )


def _ragged_dot(i: Instruction) -> Computation:
    if pays_in_blocks(i):
        return ragged_in_blocks(i)
    r = _Ragged(i)
    if r.ragged in r.contract[0]:
        return r.p.build(_ragged_contraction(r))
    whole = r.dot(r.lhs, r.rhs, r.contract, r.batch)
    if not r.group:
        return r.p.build(_up_to_last_group(r, whole))
    return r.p.build(_ragged_rows(r, whole))


def _places(r: _Ragged) -> dict[int, int]:
    """Where the lhs dimensions that are not contracted lie in the product."""
    return {d: k for k, d in enumerate((*r.batch[0], *r.free))}


def _ragged_rows(r: _Ragged, whole: Instruction) -> Instruction:
    """Rows times the matrices of all groups; each row keeps its own group's product."""
    p, places = r.p, _places(r)
    taken = (*r.batch[1], *r.contract[1])
    group = len(places) + [d for d in range(r.rhs.shape.rank) if d not in taken].index(r.group[0])
    mine = r.inside(whole.shape.dims, places[r.ragged], group, tuple(places[d] for d in r.prefix))
    kept = p.op("select", mine, whole, p.full(0, whole.shape))
    dtype = whole.shape.dtype
    add = binary_computation("add", dtype)
    return p.op("reduce", kept, p.full(0, array_shape(dtype)), dimensions=(group,), to_apply=add)


def _ragged_contraction(r: _Ragged) -> Instruction:
    """One product per group; both sides are zero outside the group, since 0 times infinity is not."""
    other = dict(zip((*r.batch[0], *r.contract[0]), (*r.batch[1], *r.contract[1]), strict=True))

    def grouped(x: Instruction, ragged: int, prefix: Sequence[int]) -> Instruction:
        dims = (r.groups, *x.shape.dims)
        each = r.p.spread(x, dims, tuple(range(1, len(dims))))
        mine = r.inside(dims, ragged + 1, 0, tuple(d + 1 for d in prefix))
        return r.p.op("select", mine, each, r.p.full(0, each.shape))

    def moved(dims: tuple[tuple[int, ...], tuple[int, ...]]) -> list[tuple[int, ...]]:
        return [tuple(d + 1 for d in side) for side in dims]

    left = grouped(r.lhs, r.ragged, r.prefix)
    right = grouped(r.rhs, other[r.ragged], [other[d] for d in r.prefix])
    return r.dot(left, right, moved(r.contract), [(0, *side) for side in moved(r.batch)])


def _up_to_last_group(r: _Ragged, whole: Instruction) -> Instruction:
    """Groups of a batch dimension, or groups that share one matrix: zero after the last one."""
    p, places = r.p, _places(r)
    n = r.ends.shape.rank
    last = p.op("slice", r.ends, slice=(*((0, d, 1) for d in r.ends.shape.dims[:-1]), (r.groups - 1, r.groups, 1)))
    last = p.reshape(last, r.ends.shape.dims[: n - 1])
    limit = p.spread(last, whole.shape.dims, tuple(places[d] for d in r.prefix))
    position = p.iota("s64", whole.shape.dims, places[r.ragged])
    return p.op("select", p.compare("LT", position, limit), whole, p.full(0, whole.shape))


def _scaled_dot(i: Instruction) -> Computation:
    """Each operand times its scale, which covers an equal block of every dimension; a scalar scale is absent."""
    p = Operations(i)
    kinds = [o.shape.dtype for o in p.parameters[:2]]
    wide = "f64" if any(k.bits == 64 for k in (*kinds, i.shape.dtype)) else "f32"
    sides = [
        _scaled(p, p.convert(x, wide), p.convert(s, wide))
        for x, s in zip(p.parameters[:2], p.parameters[2:], strict=True)
    ]
    return p.build(p.op("dot", *sides, shape=i.shape.plain, **i.attrs))


def _scaled(p: Operations, x: Instruction, scale: Instruction) -> Instruction:
    if not scale.shape.rank:
        return x
    blocks: list[int] = []
    for n, s in zip(x.shape.dims, scale.shape.dims, strict=True):
        blocks += [s, n // s if s else 0]
    spread = p.spread(scale, tuple(blocks), tuple(range(0, len(blocks), 2)))
    return p.op("multiply", x, p.reshape(spread, x.shape.dims))


ROWS: Mapping[str, Callable[[Instruction], Computation]] = {"ragged-dot": _ragged_dot, "scaled-dot": _scaled_dot}
