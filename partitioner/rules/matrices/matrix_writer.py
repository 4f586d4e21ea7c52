"""Writing small programs of matrices: products, triangles, and LAPACK's routines on what one device has.

Matrices are the last two dimensions of arrays; whatever stands before them is a batch.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.lapack import LAPACK, PREFIXES, column_major
from shardc.hlo.ir.types import DTYPES, DType, Shape, array_shape, tuple_shape
from shardc.partitioner.emit.emitter import Emitter

__all__ = ["MatrixWriter", "real_type"]

_COMPLEX_NAMES = {"orgqr": "ungqr", "syevd": "heevd"}


def real_type(dtype: DType) -> DType:
    """The type of absolute values."""
    return DTYPES[f"f{dtype.bits // 2}"] if dtype.is_complex else dtype


@dataclass(frozen=True, slots=True)
class MatrixWriter:
    """Writes matrix operations with one emitter."""

    em: Emitter

    # -- shapes --------------------------------------------------------------------------------------------------

    def shape(self, x: Instruction, rows: int, columns: int) -> Shape:
        """That of a batch of other matrices."""
        return x.shape.plain.with_dims((*x.shape.dims[:-2], rows, columns))

    def rows(self, x: Instruction, low: int, high: int) -> Instruction:
        return self.em.cut(x, x.shape.rank - 2, low, high)

    def columns(self, x: Instruction, low: int, high: int) -> Instruction:
        return self.em.cut(x, x.shape.rank - 1, low, high)

    def block(self, x: Instruction, dim: int, start: Instruction, size: int) -> Instruction:
        """``size`` rows (``dim`` -2) or columns (-1) from ``start``."""
        return self.em.dynamic_slice(x, x.shape.rank + dim, start, size)

    def with_block(self, x: Instruction, part: Instruction, dim: int, start: Instruction) -> Instruction:
        """``x`` with other rows (``dim`` -2) or columns (-1) from ``start``."""
        em, rank = self.em, x.shape.rank
        starts = [start if d == rank + dim else em.index(0) for d in range(rank)]
        return em.add("dynamic-update-slice", x.shape.plain, x, part, *starts)

    def zeros(self, x: Instruction, rows: int, columns: int) -> Instruction:
        return self.em.splat(self.em.zero(x.shape.dtype), self.shape(x, rows, columns).dims)

    def spread(self, x: Instruction, dims: tuple[int, ...]) -> Instruction:
        """``x`` repeated along its dimensions of size 1."""
        kept = tuple(d for d, (a, b) in enumerate(zip(x.shape.dims, dims, strict=True)) if a == b)
        if len(kept) == len(dims):
            return x
        flat = self.em.reshape(x, tuple(dims[d] for d in kept))
        return self.em.add("broadcast", x.shape.plain.with_dims(dims), flat, dimensions=kept)

    # -- elements ------------------------------------------------------------------------------------------------

    def binary(self, opcode: str, x: Instruction, y: Instruction) -> Instruction:
        """By elements; one operand may have single rows or columns."""
        dims = tuple(map(max, x.shape.dims, y.shape.dims))
        return self.em.add(opcode, x.shape.plain.with_dims(dims), self.spread(x, dims), self.spread(y, dims))

    def compare(self, x: Instruction, y: Instruction, direction: str) -> Instruction:
        return self.em.add("compare", array_shape("pred", *x.shape.dims), x, y, direction=direction)

    def number(self, value: complex, like: Instruction) -> Instruction:
        return self.em.splat(self.em.scalar(value, like.shape.dtype), like.shape.dims)

    def select(self, condition: Instruction, yes: Instruction, no: Instruction | None = None) -> Instruction:
        """``yes`` where the condition holds, else ``no``, or zeros."""
        return self.em.select(condition, yes, self.number(0, yes) if no is None else no)

    def where(
        self, place: Instruction, other: Instruction, direction: str, yes: Instruction, no: Instruction
    ) -> Instruction:
        """``yes`` on devices whose scalar ``place`` is as told, ``no`` on others."""
        return self.em.select(self.em.splat(self.compare(place, other, direction), yes.shape.dims), yes, no)

    def index(self, x: Instruction, dim: int) -> Instruction:
        """The numbers of rows (``dim`` -2) or columns (-1)."""
        em, dims = self.em, x.shape.dims
        return em.add("iota", array_shape(em.index_type, *dims), iota_dimension=len(dims) + dim)

    def real(self, x: Instruction) -> Instruction:
        dtype = x.shape.dtype
        return self.em.add("real", x.shape.plain.with_dtype(real_type(dtype)), x) if dtype.is_complex else x

    def as_complex(self, x: Instruction, dtype: DType) -> Instruction:
        """Real numbers in a type that may be complex."""
        return self.em.add("complex", x.shape.plain.with_dtype(dtype), x, self.number(0, x)) if dtype.is_complex else x

    def conjugate(self, x: Instruction) -> Instruction:
        if not x.shape.dtype.is_complex:
            return x
        em, part = self.em, x.shape.plain.with_dtype(real_type(x.shape.dtype))
        imaginary = em.add("negate", part, em.add("imag", part, x))
        return em.add("complex", x.shape.plain, self.real(x), imaginary)

    # -- matrices ------------------------------------------------------------------------------------------------

    def transposed(self, x: Instruction) -> Instruction:
        rank = x.shape.rank
        return self.em.transpose(x, (*range(rank - 2), rank - 1, rank - 2))

    def adjoint(self, x: Instruction) -> Instruction:
        return self.conjugate(self.transposed(x))

    def product(self, x: Instruction, y: Instruction, *, adjoint: str = "") -> Instruction:
        """``x y``, with the adjoint of the ``first`` or ``second`` factor."""
        last = x.shape.rank - 1
        first, second = adjoint == "first", adjoint == "second"
        x, y = self.conjugate(x) if first else x, self.conjugate(y) if second else y
        return self.contracted(x, y, last - 1 if first else last, last if second else last - 1)

    def contracted(self, x: Instruction, y: Instruction, of_x: int, of_y: int) -> Instruction:
        """Products of elements added up along a dimension of each."""
        last = x.shape.rank - 1
        batch = tuple(range(last - 1))
        rows, columns = (z.shape.dims[2 * last - 1 - d] for z, d in ((x, of_x), (y, of_y)))
        return self.em.add(
            "dot",
            self.shape(x, rows, columns),
            x,
            y,
            lhs_batch_dims=batch,
            rhs_batch_dims=batch,
            lhs_contracting_dims=(of_x,),
            rhs_contracting_dims=(of_y,),
            operand_precision=("highest", "highest"),
        )

    def triangle(self, x: Instruction, direction: str, no: Instruction | None = None) -> Instruction:
        """Elements whose row is ``direction`` (GT, GE, LT, LE, EQ) their column, others from ``no`` or zero."""
        return self.select(self.compare(self.index(x, -2), self.index(x, -1), direction), x, no)

    def diagonal(self, x: Instruction) -> Instruction:
        """That of square matrices, one row each."""
        em, kept = self.em, self.triangle(x, "EQ")
        zero, dim = em.zero(x.shape.dtype), x.shape.rank - 2
        (made,) = em.reduce(em.reducers.get("add", x.shape.dtype), [kept], [zero], dim)
        return em.reshape(made, self.shape(x, 1, x.shape.dims[-1]).dims)

    def solve(
        self, a: Instruction, b: Instruction, *, left: bool, lower: bool, unit: bool = False, transpose: str = ""
    ) -> Instruction:
        """``x`` with ``a x = b`` (``left``), or ``x a = b``, of a triangular ``a``."""
        return self.em.add(
            "triangular-solve",
            b.shape.plain,
            a,
            b,
            left_side=left,
            lower=lower,
            unit_diagonal=unit,
            transpose_a=transpose or "NO_TRANSPOSE",
        )

    # -- LAPACK --------------------------------------------------------------------------------------------------

    def call(
        self, routine: str, operands: list[Instruction], results: list[Shape], config: str = "{}"
    ) -> list[Instruction]:
        """One of LAPACK's routines (by its real name) on a device's own matrices."""
        prefix = PREFIXES[operands[0].shape.dtype.name]
        name = _COMPLEX_NAMES.get(routine, routine) if prefix in "cz" else routine
        target = f"lapack_{prefix}{name}_ffi"
        known = LAPACK[target]
        laid = [column_major(s.plain, letters) for s, letters in zip(results, known.results, strict=True)]
        constraints = [column_major(o.shape.plain, w) for o, w in zip(operands, known.operands, strict=True)]
        made = self.em.add(
            "custom-call",
            laid[0] if len(laid) == 1 else tuple_shape(*laid),
            *operands,
            custom_call_target=target,
            operand_layout_constraints=tuple(constraints),
            backend_config=config,
            api_version="API_VERSION_TYPED_FFI",
        )
        if len(laid) == 1:
            return [made]
        return [self.em.add("get-tuple-element", s.plain, made, index=k) for k, s in enumerate(laid)]

    def factor(self, x: Instruction) -> tuple[Instruction, Instruction]:
        """``geqrf``: reflections and R in one array, and the reflections' scales."""
        k = min(x.shape.dims[-2:])
        scales = x.shape.plain.with_dims((*x.shape.dims[:-2], k))
        packed, scale = self.call("geqrf", [x], [x.shape, scales])
        return packed, scale

    def orthonormal(self, packed: Instruction, scale: Instruction) -> Instruction:
        """``orgqr``: as many columns of Q as there are reflections."""
        columns = self.columns(packed, 0, scale.shape.dims[-1])
        return self.call("orgqr", [columns, scale], [columns.shape])[0]

    def qr(self, x: Instruction) -> tuple[Instruction, Instruction]:
        """Q with as many columns as R has rows, and R."""
        packed, scale = self.factor(x)
        r = self.rows(packed, 0, scale.shape.dims[-1])
        return self.orthonormal(packed, scale), self.triangle(r, "LE")
