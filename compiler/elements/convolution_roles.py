"""A convolution as a product of matrices: which dimension plays which role, and where it reads the input.

Output element (row, feature) is the sum over depth of ``input[position(row, depth)] * kernel[depth, feature]``. Rows
are the output's dimensions but the features, depth the kernel's but the features, each in memory order. Along every
dimension of the input the position is affine: a base (the padding) and a step per role. Forward convolutions and both
gradients only differ in who is who: in a weight gradient the kernel's window is a whole image and rows are few.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from itertools import pairwise, product
from typing import NamedTuple

from shardc.compiler.elements.affine import Expr
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.opset import Window

__all__ = ["BlockReading", "Role", "RoleCut", "Roles", "cut", "joint_stride", "run_length"]

#: Most convolutions that one of a dilated input becomes: each is code of its own.
_PARTS = 16


class Role(NamedTuple):
    """``size`` steps, each moving ``step`` along dimension ``dim`` of the (padded, dilated) input.

    ``own`` is the dimension of the output or of the kernel that counts them: every ``every``-th index from ``first``.
    """

    size: int
    dim: int
    step: int
    own: int
    first: int = 0
    every: int = 1

    def at(self, x: Expr) -> Expr:
        """The index along ``own``."""
        return x * self.every + self.first


class Roles:
    """The roles of a convolution; groups, if any, are an outermost role with features of their own."""

    def __init__(self, i: Instruction) -> None:
        a = i.attrs
        d = a["dim_labels"]
        window = a.get("window", Window(())).dims
        self.input, self.kernel = (o.shape for o in i.operands)
        self.output = i.shape
        self.feature_dim, self.kernel_feature_dim = d.out_feature, d.rhs_output_feature
        feature_groups, batch_groups = a.get("feature_group_count", 1), a.get("batch_group_count", 1)
        self.groups: int = feature_groups * batch_groups
        self.features: int = i.shape.dims[d.out_feature] // self.groups
        channels = self.kernel.dims[d.rhs_input_feature]
        batch = i.shape.dims[d.out_batch]
        self.group = (
            Role(batch_groups, d.lhs_batch, batch, -1)
            if batch_groups > 1
            else Role(feature_groups, d.lhs_feature, channels, -1)
        )
        rows = [Role(batch, d.lhs_batch, 1, d.out_batch)]
        depth = [Role(channels, d.lhs_feature, 1, d.rhs_input_feature)]
        self.base: list[int] = [0] * self.input.rank
        self.dilation = [1] * self.input.rank
        for number, w in enumerate(window):
            dim = d.lhs_spatial[number]
            rows.append(Role(i.shape.dims[d.out_spatial[number]], dim, w.stride, d.out_spatial[number]))
            step = -w.rhs_dilate if w.reversal else w.rhs_dilate
            depth.append(Role(w.size, dim, step, d.rhs_spatial[number]))
            self.base[dim] = (w.size - 1) * w.rhs_dilate * w.reversal - w.pad_low
            self.dilation[dim] = w.lhs_dilate
        self.rows = tuple(sorted(rows, key=lambda r: r.own))
        self.depth = tuple(sorted(depth, key=lambda r: r.own))

    @property
    def row_count(self) -> int:
        return math.prod(r.size for r in self.rows)

    @property
    def depth_count(self) -> int:
        return math.prod(r.size for r in self.depth)

    @property
    def depth_as_read(self) -> tuple[Role, ...]:
        """Depth in the order in which the input lies."""
        return tuple(sorted(self.depth, key=lambda r: r.dim))

    @property
    def work(self) -> int:
        """Multiplications."""
        return self.groups * self.row_count * self.depth_count * self.features

    @property
    def inside(self) -> bool:
        """Whether every row and depth reads an element that the input holds: no padding, no gaps."""
        low, high = list(self.base), list(self.base)
        for r in (self.group, *self.rows, *self.depth):
            low[r.dim] += min(r.step, 0) * (r.size - 1)
            high[r.dim] += max(r.step, 0) * (r.size - 1)
        dims = self.input.dims
        return max(self.dilation) == 1 and min(low) >= 0 and all(h < n for h, n in zip(high, dims, strict=True))

    @property
    def scattered(self) -> bool:
        """Whether the roles count only some of the rows, or of the depth."""
        return any(r.every != 1 for r in (*self.rows, *self.depth))

    def parts(self) -> list[Roles]:
        """Convolutions without gaps in their input that make up this one.

        Where the input is dilated, a row meets elements at some depths only, the same for every so many rows: such
        rows and those depths are a convolution of their own. Rows that meet none are in no part. Gaps so wide that
        there would be very many parts stay.
        """
        if math.prod(self.dilation) > _PARTS:
            return [self]
        parts = [self]
        for dim, gap in enumerate(self.dilation):
            if gap != 1:
                parts = [p for whole in parts for p in whole._without_gaps(dim, gap)]
        return parts

    def _without_gaps(self, dim: int, gap: int) -> list[Roles]:
        (row,), (depth,) = ([r for r in roles if r.dim == dim] for roles in (self.rows, self.depth))
        every_row, every_depth = gap // math.gcd(gap, row.step), gap // math.gcd(gap, depth.step)
        found = []
        for first_row, first_depth in product(range(every_row), range(every_depth)):
            start = self.base[dim] + first_row * row.step + first_depth * depth.step
            if start % gap == 0:
                part = copy(self)
                part.base = [start // gap if d == dim else n for d, n in enumerate(self.base)]
                part.dilation = [1 if d == dim else n for d, n in enumerate(self.dilation)]
                part.rows = _some(self.rows, row, first_row, every_row, gap)
                part.depth = _some(self.depth, depth, first_depth, every_depth, gap)
                if part.rows and part.depth:
                    found.append(part)
        return found

    def first_row(self) -> int:
        """Rows before this one (all but single ones, when features are not last) are taken one index at a time."""
        return _behind(self.rows, self.feature_dim, self.output.dims)

    def first_depth(self) -> int:
        return _behind(self.depth, self.kernel_feature_dim, self.kernel.dims)


def _some(roles: tuple[Role, ...], which: Role, first: int, every: int, gap: int) -> tuple[Role, ...]:
    """Every ``every``-th step of one role, in an input without gaps; nothing if there is no such step."""
    size = -(-(which.size - first) // every)
    some = Role(size, which.dim, which.step * every // gap, which.own, first, every)
    return tuple(some if r is which else r for r in roles) if size > 0 else ()


def _behind(roles: Sequence[Role], feature: int, dims: Sequence[int]) -> int:
    """The first role behind the features; 0 when nothing lies behind them."""
    if math.prod(dims[feature + 1 :]) == 1:
        return 0
    return next(n for n, r in enumerate(roles) if r.own > feature)


@dataclass(frozen=True, slots=True)
class RoleCut:
    """Roles cut into blocks: one index of each role before ``at``, ``chunk`` of that one, all of those behind."""

    roles: tuple[Role, ...]
    at: int
    chunk: int

    @property
    def pieces(self) -> int:
        """Blocks along the role that is cut."""
        return -(-self.roles[self.at].size // self.chunk)

    @property
    def count(self) -> int:
        """Blocks in all."""
        return math.prod(r.size for r in self.roles[: self.at]) * self.pieces

    @property
    def rest(self) -> int:
        """What the last piece has less than a chunk; 0 when all are equal."""
        return self.roles[self.at].size % self.chunk

    def sizes(self, rest: bool = False) -> tuple[int, ...]:
        """The extent of a block per role."""
        middle = self.rest if rest else self.chunk
        return (*(1 for _ in range(self.at)), middle, *(r.size for r in self.roles[self.at + 1 :]))

    def whole(self) -> tuple[int, ...]:
        return tuple(r.size for r in self.roles)


def cut(roles: tuple[Role, ...], target: int, first: int = 0) -> RoleCut:
    """Blocks of at most about ``target`` indices, as equal as can be; roles before ``first`` are not joined."""
    at, inner = len(roles) - 1, 1
    while at > first and inner * roles[at].size <= target:
        inner *= roles[at].size
        at -= 1
    size = roles[at].size
    chunk = min(size, max(1, target // inner))
    divisor = max(n for n in range(1, chunk + 1) if size % n == 0)
    if divisor * 10 >= chunk * 6:
        return RoleCut(roles, at, divisor)
    return RoleCut(roles, at, -(-size // -(-size // chunk)))


@dataclass(frozen=True, slots=True)
class BlockReading:
    """What a block reads: ``extents`` positions from an origin, per dimension of the input."""

    roles: Roles
    rows: tuple[int, ...]
    depth: tuple[int, ...]

    def _each(self) -> list[tuple[Role, int]]:
        r = self.roles
        return [*zip(r.rows, self.rows, strict=True), *zip(r.depth, self.depth, strict=True)]

    @property
    def extents(self) -> tuple[int, ...]:
        out = [1] * self.roles.input.rank
        for role, size in self._each():
            out[role.dim] += abs(role.step) * (size - 1)
        return tuple(out)

    def origin(self, group: Expr, rows: Sequence[Expr], depth: Sequence[Expr]) -> tuple[Expr, ...]:
        """The first position per dimension, for a block that starts there (in the dilated input)."""
        out = [Expr(n) for n in self.roles.base]
        out[self.roles.group.dim] += group * self.roles.group.step
        for (role, size), start in zip(self._each(), (*rows, *depth), strict=True):
            out[role.dim] = out[role.dim] + start * role.step + min(role.step, 0) * (size - 1)
        return tuple(out)

    def index(self, rows: Sequence[Expr], depth: Sequence[Expr]) -> tuple[Expr, ...]:
        """The place of a (local) element in what is read."""
        out = [Expr() for _ in self.roles.base]
        for (role, size), at in zip(self._each(), (*rows, *depth), strict=True):
            out[role.dim] = out[role.dim] + at * role.step - min(role.step, 0) * (size - 1)
        return tuple(out)


def joint_stride(sizes: Sequence[int], strides: Sequence[int]) -> int | None:
    """The stride of several loops taken as one long one; None when they do not follow one another."""
    kept = [(n, s) for n, s in zip(sizes, strides, strict=True) if n != 1]
    for (_, outer), (n, inner) in pairwise(kept):
        if outer != inner * n:
            return None
    return kept[-1][1] if kept else 0


def run_length(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """How many elements of innermost loops lie next to each other in memory."""
    total = 1
    for n, s in zip(reversed(sizes), reversed(strides), strict=True):
        if n != 1 and s != total:
            break
        total *= n
    return total
