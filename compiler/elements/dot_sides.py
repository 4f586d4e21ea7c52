"""The two sides of a matrix product: which strides BLAS can take as they are, and dense copies of those it cannot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from shardc.compiler.elements.affine import Expr, VarSource, delinearise
from shardc.compiler.elements.elements import Index
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import Shape

__all__ = ["DotSide", "DotSides", "Matrix"]


class Matrix(NamedTuple):
    """One side of a product as BLAS sees it: leading dimension, transposed or not, offsets per batch index.

    ``packed``: it is a dense copy of the operand.
    """

    leading: int
    transposed: bool
    batch_strides: tuple[int, ...]
    packed: bool = False

    def offset(self, source: VarSource, batch: Index, row: Expr, column: Expr) -> Expr:
        """Where the element in ``row`` and ``column`` lies, in elements."""
        total = row + column * self.leading if self.transposed else row * self.leading + column
        for index, stride in zip(batch, self.batch_strides, strict=True):
            total = total + index * stride
        return total


class DotSides:
    """A dot as batch x rows x columns x depth: each side's dimensions in the order (batch, free, contracted)."""

    def __init__(self, dot: Instruction) -> None:
        lhs, rhs = dot.operands
        a = dot.attrs
        self.left = DotSide(lhs.shape, a.get("lhs_batch_dims", ()), a.get("lhs_contracting_dims", ()), True)
        self.right = DotSide(rhs.shape, a.get("rhs_batch_dims", ()), a.get("rhs_contracting_dims", ()), False)
        self.batch = tuple(lhs.shape.dims[d] for d in self.left.batch)
        self.m, self.n, self.k = self.left.free_size, self.right.free_size, self.left.sum_size

    @property
    def batches(self) -> int:
        return math.prod(self.batch)

    @property
    def work(self) -> int:
        """Multiplications."""
        return self.batches * self.m * self.n * self.k

    def result_index(self, source: VarSource, batch: Index, row: Expr, column: Expr) -> Index:
        """The index of the dot's result for a batch index, a row and a column."""
        rows = delinearise(source, row, [self.left.dims[d] for d in self.left.free])
        columns = delinearise(source, column, [self.right.dims[d] for d in self.right.free])
        return (*batch, *rows, *columns)


class DotSide:
    """The dimensions of one side by role, and their strides."""

    def __init__(self, shape: Shape, batch: Sequence[int], contracted: Sequence[int], rows_first: bool) -> None:
        self.dims = shape.dims
        self.batch = tuple(batch)
        self.contracted = tuple(contracted)
        self.free = tuple(d for d in range(shape.rank) if d not in self.batch and d not in self.contracted)
        self.free_size = self.size(self.free)
        self.sum_size = self.size(self.contracted)
        #: The dimensions that make rows and columns of the matrix: (free, contracted) or the other way round.
        self.rows, self.columns = (self.free, self.contracted) if rows_first else (self.contracted, self.free)

    def size(self, dims: Sequence[int]) -> int:
        return math.prod(self.dims[d] for d in dims)

    def stride(self, dim: int) -> int:
        return self.size(range(dim + 1, len(self.dims)))

    def joint_stride(self, dims: Sequence[int]) -> int | None:
        """The stride of several dimensions taken as one long one; None when they do not follow one another."""
        dims = [d for d in dims if self.dims[d] != 1]
        for a, b in pairwise(dims):
            if self.stride(a) != self.stride(b) * self.dims[b]:
                return None
        return self.stride(dims[-1]) if dims else 0

    def as_it_lies(self) -> Matrix | None:
        """The operand in memory as a matrix; None where BLAS cannot read it so."""
        height, width = self.size(self.rows), self.size(self.columns)
        down, across = self.joint_stride(self.rows), self.joint_stride(self.columns)
        if down is None or across is None:
            return None
        strides = tuple(self.stride(d) for d in self.batch)
        if (across == 1 or width == 1) and (height == 1 or down >= width):
            return Matrix(down if height > 1 else max(width, 1), False, strides)
        if (down == 1 or height == 1) and (width == 1 or across >= height):
            return Matrix(across if width > 1 else max(height, 1), True, strides)
        return None

    def dense(self) -> Matrix:
        """A copy with dimensions in the order batch, rows, columns."""
        height, width = self.size(self.rows), self.size(self.columns)
        strides: list[int] = []
        stride = height * width
        for d in reversed(self.batch):
            strides.append(stride)
            stride *= self.dims[d]
        return Matrix(max(width, 1), False, tuple(reversed(strides)), packed=True)

    def operand_index(self, source: VarSource, batch: Index, row: Expr, column: Expr) -> Index:
        """The operand's index for a batch index, a row and a column of its matrix."""
        where = dict(zip(self.batch, batch, strict=True))
        for dims, position in ((self.rows, row), (self.columns, column)):
            where |= zip(dims, delinearise(source, position, [self.dims[d] for d in dims]), strict=True)
        return tuple(where[d] for d in range(len(self.dims)))
