"""Fourier transforms along a split dimension, in four steps (Bailey, J. Supercomputing 4, 1990).

An array of n = n1 n2 elements is read as n1 rows of n2. With m = m1 n2 + m2 and k = k1 + n1 k2, a transform of n is
one of n1 along the columns, a turn of element (k1, m2) by exp(-2 pi i k1 m2 / n), and one of n2 along the rows. Each
device transforms whole columns, then whole rows, and the result goes back to its place: three all-to-alls of shards
instead of a gather of everything. Of a real array only the k1 up to n1 / 2 are computed and sent; the rest are their
mirror images. An inverse real transform goes the same way backwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from shardc.costs.kernels.kernel_model import kernel_seconds
from shardc.costs.kernels.traffic import instruction_traffic
from shardc.costs.kernels.work import instruction_work
from shardc.costs.machines.device import Device
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import DTYPES, DType, Shape, array_shape
from shardc.partitioner.emit.layout import Atoms, AxisTable
from shardc.partitioner.reshard.halo import with_padding
from shardc.partitioner.reshard.rechunk import rechunk, total_sent
from shardc.partitioner.rules.dynamic import as_type
from shardc.partitioner.strategy.choose import Computes, SplitProblem, dims_of
from shardc.partitioner.strategy.rule import Local, LocalSite, all_factors, always
from shardc.sharding.rules.factor_rule import FactorKind, FactorRule, RuleBuilder

__all__ = ["FOUR_STEPS", "Split", "best_split", "transform_seconds"]

#: Transforms between real arrays and half spectra.
_REAL = ("RFFT", "IRFFT")


@dataclass(frozen=True, slots=True)
class Split:
    """n = ``n1`` * ``n2`` over the devices: what one device sends, in elements of operand and result, per line."""

    n1: int
    n2: int
    operand: float
    result: float
    collectives: int


@lru_cache(maxsize=4096)
def best_split(n: int, k: int, kind: str) -> Split | None:
    """The split of ``n`` over ``k`` devices that sends the fewest bytes; None where ``n`` has no two factors.

    >>> best_split(4096, 8, "FFT").result
    896.0
    >>> best_split(1009, 8, "FFT") is None
    True
    """
    small = [d for d in range(2, math.isqrt(n) + 1) if n % d == 0]
    found = [_split(n, k, kind, n1) for n1 in sorted({*small, *(n // d for d in small)})]
    return min(found, key=lambda s: (s.operand + s.result, s.collectives, abs(s.n1 - s.n2), s.n1), default=None)


def _split(n: int, k: int, kind: str, n1: int) -> Split:
    """Sizes of the three exchanges, and of what brings chunks into whole rows and back."""
    n2, real = n // n1, kind in _REAL
    columns, rows, sides = _grid(n, n1, real=real)
    outer, inner = _share(n1, k), _share(n2, k)
    wide, spectrum = _share(columns, k), n // 2 + 1 if real else n
    moved = (k - 1) / k
    times = [_share(n, k), outer * n2]
    bins = [_share(rows, k) * n1, _share(spectrum, k)]
    if kind == "IRFFT":
        times.reverse()
        bins.reverse()
    (early, first), (late, second) = total_sent(n, k, *times), total_sent(spectrum, k, *bins)
    in_time = outer * inner * k * moved + early
    in_bins = (wide * inner + sides * _share(rows, k) * wide) * k * moved + late
    both = (in_bins, in_time) if kind == "IRFFT" else (in_time, in_bins)
    return Split(n1, n2, *both, 3 + first + second)


def _grid(n: int, n1: int, *, real: bool) -> tuple[int, int, int]:
    """Columns (k1) and rows (k2) of the spectrum that are kept, and how many sides of it."""
    return (n1 // 2 + 1, n // 2 // n1 + 1, 2) if real else (n1, n // n1, 1)


def _share(n: int, k: int) -> int:
    return -(-n // k)


def _rule(op: Instruction) -> FactorRule | None:
    if len(op.attrs["fft_length"]) != 1:
        return None
    return _equation(op.operands[0].shape.dims, op.shape.dims, op.attrs["fft_length"][0])


@lru_cache(maxsize=4096)
def _equation(before: tuple[int, ...], after: tuple[int, ...], n: int) -> FactorRule:
    """The transformed dimension is split in operand and result alike, whatever their sizes."""
    b = RuleBuilder([before], [after])
    last = len(before) - 1
    for d in range(last):
        b.add(before[d], [(0, d), (1, d)])
    b.add(n, [(0, last), (1, last)], FactorKind.PERMUTATION)
    return b.build()


def _kind(before: int, after: int) -> str:
    """Which transform changes the bytes per element so."""
    return "RFFT" if before < after else "IRFFT" if before > after else "FFT"


def _sends(table: AxisTable, problem: SplitProblem, factors: tuple[Atoms, ...]) -> tuple[float, int]:
    """Three all-to-alls and the ends of chunks; out of the question where the length has no two factors."""
    (along,) = problem.rule.of_kind(FactorKind.PERMUTATION)
    k = table.extent(factors[along])
    if k == 1:
        return (0.0, 0)
    before, after = problem.operands[0].nbytes, problem.results[0][1]
    split = best_split(problem.rule.factors[along].size, k, _kind(before, after))
    if split is None:
        return (math.inf, 0)
    lines = 1
    for f, (factor, atoms) in enumerate(zip(problem.rule.factors, factors, strict=True)):
        lines *= 1 if f == along else _share(factor.size, table.extent(atoms))
    return (lines * (split.operand * before + split.result * after), split.collectives)


def _emit(site: LocalSite) -> list[Instruction]:
    last = site.op.shape.rank - 1
    atoms = site.operand_atoms(0, last)
    if not atoms:
        return site.emit()
    kind, (n,) = site.op.attrs["fft_type"], site.op.attrs["fft_length"]
    split = best_split(n, site.em.table.extent(atoms), kind)
    assert split is not None
    steps = _TransformSteps(site, atoms, split, kind)
    x = site.operands[0]
    made = steps.real(x) if kind == "RFFT" else steps.back_to_real(x) if kind == "IRFFT" else steps.complex(x)
    return [made]


@dataclass(frozen=True, slots=True)
class _TransformSteps:
    """One transform while it is written. Lines stand first, of any number of dimensions; ``rank`` is the last one."""

    site: LocalSite
    atoms: Atoms
    split: Split
    kind: str

    @property
    def rank(self) -> int:
        return self.site.op.shape.rank - 1

    @property
    def n(self) -> int:
        return self.split.n1 * self.split.n2

    @property
    def k(self) -> int:
        return self.site.em.table.extent(self.atoms)

    # -- the three kinds ---------------------------------------------------------------------------------------

    def complex(self, x: Instruction) -> Instruction:
        n1, n2 = self.split.n1, self.split.n2
        x = self.to_columns(x)
        x = self.turned(self.along_columns(x, self.kind, n1), 1)
        x = self.exchanged(x, 1, 0, n2)
        x = self.fft(x, self.kind, n2)
        x = self.exchanged(x, 0, 1, n1)
        return self.from_rows(self.swapped(x), n1, self.n)

    def real(self, x: Instruction) -> Instruction:
        """Bins n1 k2 + k1 with k1 beyond n1 / 2 are mirrored: conjugates of those at n1 - k1 and n2 - 1 - k2."""
        em, (n1, n2), last = self.site.em, (self.split.n1, self.split.n2), self.rank
        columns, rows, _ = _grid(self.n, n1, real=True)
        x = self.to_columns(x)
        x = self.turned(self.along_columns(x, "RFFT", n1), 1)
        x = self.exchanged(x, 1, 0, n2)
        x = self.fft(x, "FFT", n2)
        mirrored = self.reversed(self.conjugate(em.cut(x, last + 1, n2 - rows, n2)), last + 1)
        both = self.exchanged(self.paired(em.cut(x, last + 1, 0, rows), mirrored), 0, 1, columns)
        direct, mirrored = self.unpaired(both)
        mirrored = self.reversed(em.cut(mirrored, last, 1, (n1 - 1) // 2 + 1), last)
        whole = em.concatenate([direct, mirrored], last)
        return self.from_rows(self.swapped(whole), n1, self.n // 2 + 1)

    def back_to_real(self, x: Instruction) -> Instruction:
        """Every device gets the bins of its columns and of their mirror images."""
        em, (n1, n2), last = self.site.em, (self.split.n1, self.split.n2), self.rank
        columns, rows, _ = _grid(self.n, n1, real=True)
        x = self.to_rows(x, n1, rows, self.n // 2 + 1)
        x = self.swapped(x)
        first = em.cut(x, last, 0, 1)
        others = self.reversed(em.cut(x, last, n1 - columns + 1, n1), last)
        pair = self.paired(em.cut(x, last, 0, columns), em.concatenate([first, others], last))
        direct, mirrored = self.unpaired(self.exchanged(pair, 1, 0, rows))
        x = self.turned(self.fft(self.completed(direct, mirrored), "IFFT", n2), 0)
        x = self.exchanged(x, 0, 1, columns)
        x = self.along_columns(x, "IRFFT", n1)
        x = self.exchanged(x, 1, 0, n2)
        return self.from_rows(x, n2, self.n)

    def completed(self, direct: Instruction, mirrored: Instruction) -> Instruction:
        """All n2 bins of own columns: from the lower half of the spectrum, or conjugates from there.

        Column 0 is its own mirror image, one row off.
        """
        em, n1, n2, last = self.site.em, self.split.n1, self.split.n2, self.rank
        rows, zero = direct.shape.dims[last + 1], em.scalar(0, direct.shape.dtype)
        shape = array_shape("pred", *direct.shape.dims)
        index = em.global_index(direct.shape.dims, last, self.atoms)
        is_first = em.add("compare", shape, index, em.splat(em.index(0), shape.dims), direction="EQ")
        shifted = with_padding(em, direct, last + 1, (-1, 1, 0), zero)
        mirrored = self.reversed(self.conjugate(em.select(is_first, shifted, mirrored)), last + 1)
        mirrored = with_padding(em, mirrored, last + 1, (n2 - rows, 0, 0), zero)
        direct = with_padding(em, direct, last + 1, (0, n2 - rows, 0), zero)
        dims, shape = direct.shape.dims, array_shape("pred", *direct.shape.dims)
        row = em.global_index(dims, last + 1, ())
        bins = em.add("multiply", row.shape, row, em.splat(em.index(n1), dims))
        bins = em.add("add", row.shape, bins, em.global_index(dims, last, self.atoms))
        lower = em.add("compare", shape, bins, em.splat(em.index(self.n // 2), dims), direction="LE")
        return em.select(lower, direct, mirrored)

    # -- chunks, rows and columns --------------------------------------------------------------------------------

    def to_columns(self, x: Instruction) -> Instruction:
        """(lines, n1, own columns) from chunks of a line."""
        n1, n2 = self.split.n1, self.split.n2
        return self.exchanged(self.to_rows(x, n2, n1, self.n), 0, 1, n1)

    def to_rows(self, x: Instruction, width: int, rows: int, n: int) -> Instruction:
        """(lines, own rows, width) from chunks of ``n``."""
        own = _share(rows, self.k)
        x = rechunk(self.site.em, x, n, (self.rank, self.atoms, own * width))
        return self.site.em.reshape(x, (*x.shape.dims[:-1], own, width))

    def from_rows(self, x: Instruction, width: int, n: int) -> Instruction:
        """Chunks of ``n`` from (lines, own rows, width)."""
        x = self.site.em.reshape(x, (*x.shape.dims[: self.rank], x.shape.dims[self.rank] * width))
        return rechunk(self.site.em, x, n, (self.rank, self.atoms, _share(n, self.k)))

    def exchanged(self, x: Instruction, source: int, target: int, whole: int) -> Instruction:
        """Of the two dimensions after the lines, the split one becomes whole and the other one split.

        ``whole`` is the size of the one that becomes whole.
        """
        em, k = self.site.em, self.k
        source, target = self.rank + source, self.rank + target
        x = em.resize(x, target, _share(x.shape.dims[target], k) * k)
        dims = x.shape.dims
        x = em.reshape(x, (*dims[:target], k, dims[target] // k, *dims[target + 1 :]))
        x = em.all_to_all(x, target, self.atoms)
        order = [d + (d >= target) for d in range(len(dims))]
        order.insert(source, target)
        x = em.transpose(x, tuple(order))
        merged = (n // k if d == target else n * k if d == source else n for d, n in enumerate(dims))
        return em.resize(em.reshape(x, tuple(merged)), source, whole)

    def swapped(self, x: Instruction) -> Instruction:
        order = list(range(x.shape.rank))
        order[self.rank], order[self.rank + 1] = order[self.rank + 1], order[self.rank]
        return self.site.em.transpose(x, tuple(order))

    def paired(self, x: Instruction, y: Instruction) -> Instruction:
        dims = (*x.shape.dims, 1)
        em = self.site.em
        return em.concatenate([em.reshape(x, dims), em.reshape(y, dims)], len(dims) - 1)

    def unpaired(self, x: Instruction) -> tuple[Instruction, Instruction]:
        em, last = self.site.em, x.shape.rank - 1
        first, second = (em.reshape(em.cut(x, last, i, i + 1), x.shape.dims[:-1]) for i in (0, 1))
        return first, second

    # -- arithmetic ----------------------------------------------------------------------------------------------

    def fft(self, x: Instruction, kind: str, length: int) -> Instruction:
        """A transform along the last dimension."""
        dtype = self.site.op.shape.dtype
        if kind != "IRFFT":
            dtype = DTYPES["c64" if x.shape.dtype in (DTYPES["f32"], DTYPES["c64"]) else "c128"]
        size = length // 2 + 1 if kind == "RFFT" else length
        shape = array_shape(dtype, *x.shape.dims[:-1], size)
        return self.site.em.add("fft", shape, x, fft_type=kind, fft_length=(length,))

    def along_columns(self, x: Instruction, kind: str, length: int) -> Instruction:
        return self.swapped(self.fft(self.swapped(x), kind, length))

    def turned(self, x: Instruction, split: int) -> Instruction:
        """Element (k1, m2) times exp(-2 pi i k1 m2 / n), or its conjugate on the way back; one of the two is split."""
        em, dims, dtype = self.site.em, x.shape.dims[self.rank :], x.shape.dtype
        index = DTYPES["s32" if 2 * self.n < 1 << 31 else "s64"]
        whole = array_shape(index, *dims)
        places = [em.global_index(dims, d, self.atoms if d == split else (), index) for d in (0, 1)]
        turns = em.add("multiply", whole, *places)
        # Turns beyond a half go the other way round: small angles are precise ones.
        far = em.add("compare", array_shape("pred", *dims), turns, self._number(self.n // 2, whole), direction="GT")
        turns = em.select(far, em.add("subtract", whole, turns, self._number(self.n, whole)), turns)
        wide = dtype is DTYPES["c128"] or self.n > 1 << 24
        part = array_shape("f64" if wide else "f32", *dims)
        step = 2 * math.pi / self.n * (1 if self.kind in ("IFFT", "IRFFT") else -1)
        angle = em.add("multiply", part, em.add("convert", part, turns), self._number(step, part))
        plain = array_shape("f64" if dtype is DTYPES["c128"] else "f32", *dims)
        both = (as_type(em, em.add(opcode, part, angle), plain.dtype) for opcode in ("cosine", "sine"))
        factor = em.add("complex", array_shape(dtype, *dims), *both)
        factor = em.add("broadcast", x.shape.plain, factor, dimensions=(self.rank, self.rank + 1))
        return em.add("multiply", x.shape.plain, x, factor)

    def _number(self, value: float, shape: Shape) -> Instruction:
        return self.site.em.splat(self.site.em.scalar(value, shape.dtype), shape.dims)

    def conjugate(self, x: Instruction) -> Instruction:
        em = self.site.em
        part = array_shape("f32" if x.shape.dtype is DTYPES["c64"] else "f64", *x.shape.dims)
        real, imag = em.add("real", part, x), em.add("imag", part, x)
        return em.add("complex", x.shape.plain, real, em.add("negate", part, imag))

    def reversed(self, x: Instruction, dim: int) -> Instruction:
        return self.site.em.add("reverse", x.shape.plain, x, dimensions=(dim,))


# -- how long it computes ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _TransformSeconds:
    """A device's share of a transform. In four steps, its elements go through memory once more."""

    dtypes: tuple[DType, DType]
    kind: str
    lengths: tuple[int, ...]

    def __call__(self, table: AxisTable, problem: SplitProblem, factors: tuple[Atoms, ...], device: Device) -> float:
        rule, rank = problem.rule, len(problem.operands[0].dims)
        lines = [[*d] for d in (problem.operands[0].dims, problem.results[0][0])]
        share, batch = 1, rank - len(self.lengths)
        for d, atoms in enumerate(dims_of(rule.operands[0], factors)):
            if d < batch:
                for dims in lines:
                    dims[d] = _share(dims[d], table.extent(atoms))
            else:
                share *= table.extent(atoms)
        before, after = (array_shape(t, *d) for t, d in zip(self.dtypes, lines, strict=True))
        x = Instruction("parameter", before, (), {"index": 0})
        op = Instruction("fft", after, (x,), {"fft_type": self.kind, "fft_length": self.lengths})
        seconds = kernel_seconds(device, instruction_work(op, instruction_traffic(op))).seconds / share
        again = (before.nbytes + after.nbytes) / share / (device.memory_bandwidth * device.memory_share)
        return seconds + (again + device.launch_seconds if share > 1 else 0.0)


def transform_seconds(op: Instruction, rule: FactorRule) -> Computes:
    """What devices compute of a transform: all of it where its dimensions are whole."""
    dtypes = (op.operands[0].shape.dtype, op.shape.dtype)
    return _TransformSeconds(dtypes, op.attrs["fft_type"], tuple(op.attrs["fft_length"]))


FOUR_STEPS = Local(
    "in four steps: columns, then rows",
    _emit,
    all_factors,
    rule=_rule,
    sends=always(_sends),
    computes=transform_seconds,
    sends_by="all-to-all",
)
