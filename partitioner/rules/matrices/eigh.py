"""Eigenvalues and vectors of a Hermitian matrix whose rows are split: Jacobi's method, one-sided and by blocks.

Rows of G = A / s + 2 I are combined by rotations until all are orthogonal to each other: then they are eigenvectors,
times their eigenvalues (Hestenes, "Inversion of matrices by biorthogonalization and related results", J. SIAM 6, 1958).
Each device has two blocks of rows. A round rotates them by the eigenvectors of the small matrix of their products. Then
a block goes to the neighbour, and in the next round another one comes back. So the blocks of a line change places until
each has met all others once, which is a sweep (odd-even order: Luk, Park, "On parallel Jacobi orderings", SIAM J. Sci.
Stat. Comput. 10, 1989). Where two blocks meet, the same one gets the larger eigenvalues in every sweep. Sweeps end when
rows are orthogonal to rounding.

``s`` is at most the norm of A, and almost certainly more than half of it: ``|A^16 x|^(1/16)`` of four random vectors
(Dixon, "Estimating extremal eigenvalues and condition numbers of matrices", SIAM Journal on Numerical Analysis 20,
1983). So G is positive, and its condition is small: products of rows lose no digits, and left singular vectors are
eigenvectors.

Rows that are missing in a last block are zero. They come first among the eigenvalues of G, and are cut off.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shardc.costs.kernels.kernel_model import kernel_seconds
from shardc.costs.kernels.traffic import instruction_traffic
from shardc.costs.kernels.work import instruction_work
from shardc.costs.machines.device import Device
from shardc.hlo.ir.build import key_comparator
from shardc.hlo.ir.groups import AxisPairs
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.lapack import PREFIXES, attributes_of
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.types import DType, array_shape, tuple_shape
from shardc.partitioner.emit.emitter import Emitter
from shardc.partitioner.emit.layout import Atoms, AxisTable
from shardc.partitioner.emit.repeat import Values, repeat
from shardc.partitioner.rules.matrices.matrix_writer import MatrixWriter, real_type
from shardc.partitioner.rules.matrices.split_rows import LEAST_BLOCK, pass_or_permute, rows_equation, split_rows, told
from shardc.partitioner.strategy.choose import Computes, SplitProblem
from shardc.partitioner.strategy.rule import Local, LocalSite, always
from shardc.sharding.rules.custom_call import LEAST_ROWS
from shardc.sharding.rules.factor_rule import FactorKind, FactorRule

__all__ = ["BLOCK_JACOBI", "whole_eigen"]

#: Sweeps that a matrix usually takes, and after which the result is said to have failed.
_SWEEPS, _MOST_SWEEPS = 7, 40
#: Products with the matrix by which its norm is estimated, of so many vectors.
_POWERS, _VECTORS = 16, 4
_SHIFT = 2.0
#: Rows of G are no shorter than this, but for those that are missing.
_SHORT = 2.0**-6


# -- when, and what it sends -------------------------------------------------------------------------------------------


def _rule(op: Instruction) -> FactorRule | None:
    """Rows are split in the matrix and its eigenvectors."""
    dims = op.operands[0].shape.dims
    if len(dims) != 2 or dims[0] < LEAST_ROWS:
        return None
    return rows_equation(dims, tuple(s.dims for s in op.shape.leaves()))


def _rows_of_block(n: int, devices: int) -> int:
    return -(-n // (2 * devices))


def _sends(table: AxisTable, problem: SplitProblem, factors: tuple[Atoms, ...]) -> tuple[float, int]:
    """A block there and back in each double round, two all-to-alls, and the vectors of the norm."""
    atoms, size = split_rows(table, problem, factors)
    n, k = problem.operands[0].dims[-1], table.extent(atoms)
    if k == 1:
        return (0.0, 0)
    b = _rows_of_block(n, k)
    if b < LEAST_BLOCK:
        return (math.inf, 0)
    rounds, others = _SWEEPS * 2 * k, (k - 1) / k
    elements = rounds * b * n + 2 * n * 2 * b * others + _POWERS * _VECTORS * n * others
    return float(size * elements), rounds + _SWEEPS + _POWERS + 4


# -- how long it computes ----------------------------------------------------------------------------------------------


def _seconds(device: Device, op: Instruction) -> float:
    return kernel_seconds(device, instruction_work(op, instruction_traffic(op))).seconds


def _eigen_seconds(device: Device, dtype: DType, n: int) -> float:
    """LAPACK's routine for one matrix."""
    x = Instruction("parameter", array_shape(dtype, n, n), (), {"index": 0})
    shape = tuple_shape(x.shape, array_shape(real_type(dtype), n), array_shape("s32"))
    target = f"lapack_{PREFIXES[dtype.name]}{'heevd' if dtype.is_complex else 'syevd'}_ffi"
    return _seconds(device, Instruction("custom-call", shape, (x,), {"custom_call_target": target}))


def _product_seconds(device: Device, dtype: DType, m: int, contracted: int, n: int) -> float:
    """A product of matrices."""
    x, y = (
        Instruction("parameter", array_shape(dtype, *d), (), {"index": 0}) for d in ((m, contracted), (contracted, n))
    )
    attrs = {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (0,), "operand_precision": ("highest", "highest")}
    return _seconds(device, Instruction("dot", array_shape(dtype, m, n), (x, y), attrs))


@dataclass(frozen=True, slots=True)
class _WholeSeconds:
    """Every device computes all of its part of a batch."""

    dtype: DType

    def __call__(self, table: AxisTable, problem: SplitProblem, factors: tuple[Atoms, ...], device: Device) -> float:
        rule, times = problem.rule, 1
        for f in rule.of_kind(FactorKind.PASS_THROUGH):
            times *= -(-rule.factors[f].size // table.extent(factors[f]))
        return times * _eigen_seconds(device, self.dtype, problem.operands[0].dims[-1])


@dataclass(frozen=True, slots=True)
class _PairSeconds:
    """Products of two blocks, their eigenvectors, and the rotation."""

    dtype: DType

    def __call__(self, table: AxisTable, problem: SplitProblem, factors: tuple[Atoms, ...], device: Device) -> float:
        atoms, _ = split_rows(table, problem, factors)
        n, k, dtype = problem.operands[0].dims[-1], table.extent(atoms), self.dtype
        if k == 1:
            return _eigen_seconds(device, dtype, n)
        two = 2 * _rows_of_block(n, k)
        products = _product_seconds(device, dtype, two, n, two) + _product_seconds(device, dtype, two, two, n)
        return _SWEEPS * 2 * k * (products + _eigen_seconds(device, dtype, two))


def whole_eigen(op: Instruction, rule: FactorRule) -> Computes:
    """What LAPACK's ``syevd`` and ``heevd`` of whole matrices compute."""
    return _WholeSeconds(op.operands[0].shape.dtype)


# -- the matrix --------------------------------------------------------------------------------------------------------


def _hermitian(site: LocalSite, atoms: Atoms) -> Instruction:
    """Own rows of the matrix, of which one triangle is given."""
    em, w = site.em, MatrixWriter(site.em)
    x = site.masked(0, (0,), em.zero(site.operands[0].shape.dtype))
    (c, n), k = x.shape.dims, em.table.extent(atoms)
    blocks = em.transpose(em.reshape(em.resize(x, 1, k * c), (c, k, c)), (1, 0, 2))
    blocks = em.transpose(em.all_to_all(blocks, 0, atoms), (2, 0, 1))
    other = w.conjugate(em.resize(em.reshape(blocks, (c, k * c)), 1, n))
    row, column = em.global_index(x.shape.dims, 0, atoms), w.index(x, -1)
    lower = attributes_of(site.op).get("uplo") == ord("L")
    x = em.select(w.compare(row, column, "GE" if lower else "LE"), x, other)
    if not x.shape.dtype.is_complex:
        return x
    return em.select(w.compare(row, column, "EQ"), w.as_complex(w.real(x), x.shape.dtype), x)


def _size(em: Emitter, x: Instruction) -> Instruction:
    """Absolute values."""
    return em.add("abs", x.shape.plain.with_dtype(real_type(x.shape.dtype)), x)


def _most(em: Emitter, x: Instruction) -> Instruction:
    """The largest of a matrix of numbers that are not negative."""
    body, zero = em.reducers.get("maximum", x.shape.dtype), em.zero(x.shape.dtype)
    return em.reduce(body, em.reduce(body, [x], [zero], 1), [zero], 0)[0]


def _lengths(em: Emitter, x: Instruction, dim: int) -> Instruction:
    """Euclidean norms along a dimension, which stays with size 1."""
    size = _size(em, x)
    square = em.add("multiply", size.shape, size, size)
    (made,) = em.reduce(em.reducers.get("add", size.shape.dtype), [square], [em.zero(size.shape.dtype)], dim)
    made = em.add("sqrt", made.shape, made)
    return em.reshape(made, tuple(1 if d == dim else m for d, m in enumerate(x.shape.dims)))


def _tiny(dtype: DType) -> float:
    return float(np.finfo(dtype.numpy).tiny)


def _start(em: Emitter, n: int, dtype: DType) -> Instruction:
    """Random vectors, always the same ones."""
    w, words = MatrixWriter(em), array_shape("u32", n, _VECTORS)
    literal = Literal(np.array([n, 1], np.uint64))
    state = em.add("constant", literal.shape, literal=literal)
    drawn = em.add("rng-bit-generator", tuple_shape(state.shape, words), state, algorithm="rng_three_fry")
    made = em.add("get-tuple-element", words, drawn, index=1)
    real = em.add("convert", words.with_dtype(real_type(dtype)), made)
    real = w.binary("multiply", real, w.number(2.0**-31, real))
    return w.as_complex(w.binary("subtract", real, w.number(1, real)), dtype)


def _norm(em: Emitter, own: Instruction, atoms: Atoms) -> Instruction:
    """An estimate of the norm of a matrix whose largest element has size 1, from own rows: at most the norm."""
    n, dtype = own.shape.dims[1], own.shape.dtype
    real = real_type(dtype)

    def scaled(em: Emitter, x: Instruction) -> tuple[Instruction, Instruction]:
        w, length = MatrixWriter(em), _lengths(em, x, 0)
        length = em.add("maximum", length.shape, length, w.number(_tiny(real), length))
        return w.binary("divide", x, w.as_complex(length, dtype)), length

    def step(em: Emitter, number: Instruction, carried: Values, fixed: Values) -> Values:
        (x, total), (own,) = carried, fixed
        w = MatrixWriter(em)
        x, length = scaled(em, em.cut(em.all_gather(w.product(own, x), 0, atoms), 0, 0, n))
        return [x, w.binary("add", total, em.add("log", length.shape, length))]

    x, _ = scaled(em, _start(em, n, dtype))
    zeros = em.splat(em.zero(real), (1, _VECTORS))
    _, total = repeat(em, _POWERS, [x, zeros], [own], step, name="norm")
    w = MatrixWriter(em)
    power = em.add("exponential", total.shape, w.binary("multiply", total, w.number(1 / _POWERS, total)))
    return em.add("maximum", array_shape(real), _most(em, power), em.scalar(1, real))


# -- rotations ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _PairStep:
    """The rounds of a sweep: two blocks of ``rows`` rows each on each of ``devices``."""

    atoms: Atoms
    devices: int
    rows: int

    def rotated(self, em: Emitter, pair: Instruction, upwards: Instruction) -> tuple[Instruction, Instruction]:
        """Two blocks made orthogonal, the one with smaller eigenvalues first if ``upwards`` is 1, and how far from that
        they were: the largest cosine between two rows."""
        w, b = MatrixWriter(em), self.rows
        products = w.product(pair, pair, adjoint="second")
        size = _size(em, products)
        square = w.diagonal(size)
        there = w.compare(square, w.number(_SHORT, square), "GT")
        inverse = em.select(there, em.add("rsqrt", square.shape, square), w.number(0, square))
        cosines = w.binary("multiply", w.binary("multiply", size, inverse), w.transposed(inverse))
        worst = _most(em, w.triangle(cosines, "NE"))
        real = array_shape(size.shape.dtype, 2 * b)
        config = f"{{mode = {ord('V')} : ui8, uplo = {ord('L')} : ui8}}"
        vectors, _, _ = w.call("syevd", [products], [products.shape, real, array_shape("s32")], config)
        larger_first = em.concatenate([w.columns(vectors, b, 2 * b), w.columns(vectors, 0, b)], 1)
        vectors = w.where(upwards, em.index(1), "EQ", vectors, larger_first)
        return w.product(vectors, pair, adjoint="first"), worst

    def shifted(self, em: Emitter, x: Instruction, by: int) -> Instruction:
        """What the device ``by`` places before has, the last one coming before the first."""
        k, table = self.devices, em.table
        pairs = tuple((i, (i + by) % k) for i in range(k))
        return em.permute(x, AxisPairs(table.mesh, table.axes(self.atoms), pairs))

    def __call__(self, em: Emitter, number: Instruction, carried: Values, fixed: Values) -> Values:
        """The blocks of each device, then the second one with the first one of the next device."""
        w, b, (own, worst), (upwards,) = MatrixWriter(em), self.rows, carried, fixed
        own, first = self.rotated(em, own, upwards)
        pair = em.concatenate([w.rows(own, b, 2 * b), self.shifted(em, w.rows(own, 0, b), -1)], 0)
        turned, second = self.rotated(em, pair, upwards)
        place, last = em.coordinate(self.atoms), em.index(self.devices - 1)
        turned = w.where(place, last, "EQ", pair, turned)
        second = w.where(place, last, "EQ", w.number(0, second), second)
        for found in (first, second):
            worst = em.add("maximum", worst.shape, worst, found)
        own = em.concatenate([self.shifted(em, w.rows(turned, b, 2 * b), 1), w.rows(turned, 0, b)], 0)
        return [own, worst]


@dataclass(frozen=True, slots=True)
class _Sweeps:
    """Sweeps until no cosine between rows is more than ``tolerance``."""

    rounds: _PairStep
    tolerance: float

    def __call__(self, em: Emitter, number: Instruction, carried: Values, fixed: Values) -> Values:
        (own, worst), two = carried, em.index(2)
        upwards = em.add("remainder", number.shape, number, two)
        start = [own, em.zero(worst.shape.dtype)]
        own, worst = repeat(em, self.rounds.devices, start, [upwards], self.rounds, name="rounds")
        return [own, em.all_reduce(worst, self.rounds.atoms, "max")]

    def go_on(self, em: Emitter, carried: Values) -> Instruction:
        worst = carried[1]
        return MatrixWriter(em).compare(worst, em.scalar(self.tolerance, worst.shape.dtype), "GT")


# -- results -----------------------------------------------------------------------------------------------------------


def _sorted(em: Emitter, values: Instruction) -> tuple[Instruction, Instruction]:
    """Numbers in ascending order, and where each was."""
    places = em.add("iota", array_shape("s32", *values.shape.dims), iota_dimension=0)
    shape = tuple_shape(values.shape.plain, places.shape)
    body = key_comparator("ascending", values.shape.dtype, places.shape.dtype)
    made = em.add("sort", shape, values, places, dimensions=(0,), is_stable=True, to_apply=body)
    first, second = (em.add("get-tuple-element", s, made, index=k) for k, s in enumerate(shape.elements))
    return first, second


def _taken(em: Emitter, x: Instruction, order: Instruction) -> Instruction:
    """Rows of ``x`` in an order."""
    (n,), c = order.shape.dims, x.shape.dims[1]
    return em.add(
        "gather",
        x.shape.plain.with_dims((n, c)),
        x,
        em.reshape(order, (n, 1)),
        offset_dims=(1,),
        collapsed_slice_dims=(0,),
        start_index_map=(0,),
        index_vector_dim=1,
        slice_sizes=(1, c),
    )


def _vectors(em: Emitter, rows: Instruction, order: Instruction, atoms: Atoms, c: int) -> Instruction:
    """``c`` own rows of the eigenvectors, from those of them, conjugated, that are own ``rows``."""
    k, two = em.table.extent(atoms), rows.shape.dims[0]
    parts = em.reshape(em.resize(rows, 1, k * c), (two, k, c))
    parts = em.all_to_all(em.transpose(parts, (1, 0, 2)), 0, atoms)
    return MatrixWriter(em).adjoint(_taken(em, em.reshape(parts, (k * two, c)), order))


def _emit(site: LocalSite) -> list[Instruction]:
    em, w, (x,) = site.em, MatrixWriter(site.em), site.operands
    atoms = site.operand_atoms(0, 0)
    if not atoms:
        shapes = [site.local_shape(k) for k in range(3)]
        return w.call("syevd", [x], shapes, site.op.attrs["backend_config"])
    (c, n), k, dtype = x.shape.dims, em.table.extent(atoms), x.shape.dtype
    real, b = real_type(dtype), -(-c // 2)
    with told(site, "syevd", atoms, "columns of one triangle become rows of the other"):
        own = _hermitian(site, atoms)
    with told(site, "syevd", atoms, "the norm is estimated"):
        most = em.all_reduce(_most(em, _size(em, own)), atoms, "max")
        most = em.select(w.compare(most, em.zero(real), "EQ"), em.scalar(1, real), most)
        own = w.binary("divide", own, w.as_complex(em.splat(most, own.shape.dims), dtype))
        norm = _norm(em, own, atoms)
    own = w.binary("divide", own, w.as_complex(em.splat(norm, own.shape.dims), dtype))
    same = w.compare(em.global_index(own.shape.dims, 0, atoms), w.index(own, -1), "EQ")
    own = w.binary("add", own, w.select(same, w.number(_SHIFT, own)))
    own = em.resize(own, 0, 2 * b)
    tolerance = float(np.finfo(real.numpy).eps) * (16 + math.sqrt(n) / 2)
    sweeps = _Sweeps(_PairStep(atoms, k, b), tolerance)
    start = [own, em.scalar(math.inf, real)]
    with told(site, "syevd", atoms, "blocks of rows change places until each has met all others"):
        own, worst = repeat(em, _MOST_SWEEPS, start, [], sweeps, go_on=sweeps.go_on, likely=_SWEEPS, name="sweeps")
        lengths = em.all_gather(em.reshape(own_lengths := _lengths(em, own, 1), (2 * b,)), 0, atoms)
    values, order = _sorted(em, lengths)
    first = 2 * b * k - n
    values, order = em.cut(values, 0, first, first + n), em.cut(order, 0, first, first + n)
    scale = em.splat(em.add("multiply", norm.shape, norm, most), (n,))
    values = w.binary("multiply", w.binary("subtract", values, w.number(_SHIFT, values)), scale)
    failed = em.add("convert", array_shape("s32"), sweeps.go_on(em, [own, worst]))
    if attributes_of(site.op).get("mode") != ord("V"):
        return [x, values, failed]
    own_lengths = em.add("maximum", own_lengths.shape, own_lengths, w.number(_tiny(real), own_lengths))
    unit = w.binary("divide", own, w.as_complex(own_lengths, dtype))
    with told(site, "syevd", atoms, "eigenvectors go to the devices that have their rows"):
        return [_vectors(em, unit, order, atoms, c), values, failed]


BLOCK_JACOBI = Local(
    "rows split: blocks of rows rotated in pairs (Jacobi)",
    _emit,
    pass_or_permute,
    rule=_rule,
    sends=always(_sends),
    computes=lambda op, rule: _PairSeconds(op.operands[0].shape.dtype),
)
"""A way for LAPACK's ``syevd`` and ``heevd`` of split rows, in place of a gather."""
