"""The functions that a traced program must give NumPy's answer for: a row is a name, the function, and its arguments.

Arguments are written as types and shapes, ``f4:3,4``, several separated by blanks; ``F`` stands for each of the
floating types in turn, ``N`` for numbers (floats, signed and unsigned integers, complex), ``I`` for integers, ``A``
for all types, ``R`` for real numbers, ``C`` for floats and complex. ``+`` makes values positive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.hlo.numpy.trace_support import samples

__all__ = ["ROWS", "Row", "cases"]

Row = tuple[str, Callable[..., Any], str]

KINDS = {
    "F": ("f4", "f8", "f2"),
    "I": ("i4", "u1", "i8"),
    "N": ("f4", "f8", "i4", "u1", "c8"),
    "R": ("f4", "f8", "i4", "u1"),
    "A": ("f4", "i8", "?", "c16"),
    "C": ("f4", "f8", "c8", "c16"),
}


def _unary(names: str, arguments: str) -> list[Row]:
    return [(name, getattr(np, name), arguments) for name in names.split()]


def _searched(a: Any, v: Any) -> Any:
    return np.searchsorted(a, v), np.searchsorted(a, v, side="right")


UFUNCS: list[Row] = [
    *_unary("exp sin cos sinh cosh tanh arctan arcsinh expm1", "C:3,4"),
    *_unary("tan cbrt exp2 floor ceil trunc rint fabs deg2rad rad2deg degrees radians signbit spacing", "F:3,4"),
    *_unary("log sqrt log10 log2", "C:3,4+"),
    *_unary("log1p arccosh", "F:3,4+"),
    *_unary("negative positive absolute sign square conjugate", "N:3,4"),
    *_unary("isfinite isinf isnan logical_not", "A:3,4"),
    *_unary("invert bitwise_count", "I:3,4"),
    *_unary("floor ceil trunc", "I:3,4"),
    *_unary("modf frexp", "F:3,4"),
    *_unary("add subtract multiply true_divide", "N:3,4 N:4"),
    *_unary("maximum minimum fmax fmin equal not_equal less less_equal greater greater_equal", "N:3,4 N:4"),
    *_unary("logical_and logical_or logical_xor", "A:3,4 A:4"),
    *_unary("floor_divide remainder fmod divmod", "R:3,4 R:4"),
    *_unary("arctan2 hypot logaddexp logaddexp2 copysign nextafter heaviside", "F:3,4 F:4"),
    *_unary("bitwise_and bitwise_or bitwise_xor", "I:3,4 I:4"),
    *_unary("left_shift right_shift", "I:3,4 I:4+"),
    *_unary("gcd lcm", "i4:3,4 i4:4"),
    ("power", np.power, "F:3,4+ F:4"),
    ("power of integers", np.power, "i8:3,4 i8:4+"),
    ("float_power", np.float_power, "i4:3,4+ i4:4"),
    ("ldexp", np.ldexp, "F:3,4 i4:4"),
    ("reciprocal", np.reciprocal, "F:3,4"),
    ("arcsin", lambda x: np.arcsin(np.tanh(x / 4)), "F:3,4"),
    ("arccos", lambda x: np.arccos(np.tanh(x / 4)), "F:3,4"),
    ("arctanh", lambda x: np.arctanh(np.tanh(x / 4)), "F:3,4"),
    ("mixed types", lambda a, b, c: (a + b, b * c, a / c, a < b), "i4:3 f4:3 u1:3"),
    ("python scalars", lambda x: (x + 1, 2.5 * x, x**2, 1 / x, x - True, x > 1, -x % 3), "R:3,4+"),
    ("python complex", lambda x: x * 2j, "f4:3"),
    ("out of range comparisons", lambda x: (x < 300, x == -1, x != 256), "u1:5"),
    ("dtype=", lambda x, y: np.add(x, y, dtype=np.float64), "f4:3 i4:3"),
    ("out=", lambda x, y: np.multiply(x, y, out=np.zeros_like(x)), "f4:3 f4:3"),
    ("where=", lambda x, y: np.add(x, y, out=x.copy(), where=x > 0), "f4:3,4 f4:4"),
    ("add.reduce", lambda x: (np.add.reduce(x), np.add.reduce(x, axis=1, keepdims=True)), "R:3,4"),
    ("multiply.reduce", lambda x: np.multiply.reduce(x, axis=(0, 1)), "R:3,4"),
    ("maximum.reduce", lambda x: np.maximum.reduce(x, axis=1, initial=1), "R:3,4"),
    ("logical_or.reduce", lambda x: np.logical_or.reduce(x, axis=1), "R:3,4"),
    ("bitwise_xor.reduce", lambda x: np.bitwise_xor.reduce(x, axis=1), "I:3,4"),
    ("add.accumulate", lambda x: np.add.accumulate(x, axis=1), "R:3,7"),
    ("maximum.accumulate", np.maximum.accumulate, "R:7,3"),
    ("fmin.accumulate", lambda x: np.fmin.accumulate(np.where(x > 1, np.nan, x), axis=1), "F:3,9"),
    ("bitwise_xor.accumulate", np.bitwise_xor.accumulate, "I:9"),
    ("logical_and.accumulate", np.logical_and.accumulate, "I:9"),
    ("accumulate of nothing", lambda x: (np.cumsum(x[:0]), np.cumprod(x[:1])), "R:3"),
    ("subtract.outer", np.subtract.outer, "f4:3 f4:2,2"),
]

PRODUCTS: list[Row] = [
    ("matmul", lambda a, b: a @ b, "C:3,4 C:4,5"),
    ("matmul of integers", lambda a, b: a @ b, "I:3,4 I:4,5"),
    ("matmul of bools", lambda a, b: a @ b, "?:3,4 ?:4,5"),
    ("matmul batched", np.matmul, "f4:2,3,4 f4:2,4,5"),
    ("matmul broadcast", np.matmul, "f4:2,1,3,4 f4:5,4,2"),
    ("matmul matrix and stack", np.matmul, "f4:3,4 f4:5,4,2"),
    ("matmul stack and matrix", np.matmul, "f4:5,3,4 f4:4,2"),
    ("matmul vector", lambda a, b: (b @ a, a @ b.T), "f4:4 f4:3,4"),
    ("matmul vectors", np.matmul, "f4:4 f4:4"),
    ("matvec", np.matvec, "f4:2,3,4 f4:2,4"),
    ("vecmat", np.vecmat, "c8:3 c8:3,4"),
    ("vecdot", lambda a, b: np.vecdot(a, b, axis=0), "c8:3,4 c8:3,4"),
    ("dot", np.dot, "f4:2,3,4 f4:5,4,2"),
    ("dot of scalars", lambda a, b: np.dot(a, b[0]), "f4:3 f4:2"),
    ("inner", np.inner, "N:2,4 N:3,4"),
    ("vdot", np.vdot, "c8:2,3 c8:3,2"),
    ("outer", np.outer, "N:3 N:4"),
    ("tensordot", lambda a, b: np.tensordot(a, b, axes=([1, 2], [0, 2])), "f4:2,3,4 f4:3,5,4"),
    ("tensordot of 2", np.tensordot, "f4:2,3,4 f4:3,4,5"),
    ("kron", np.kron, "N:2,3 N:4,1,2"),
    ("einsum matmul", lambda a, b: np.einsum("ij,jk->ik", a, b), "N:3,4 N:4,5"),
    ("einsum implicit", lambda a, b: np.einsum("ij,jk", a, b), "f4:3,4 f4:4,5"),
    ("einsum trace", lambda a: np.einsum("ii", a), "R:4,4"),
    ("einsum diagonal", lambda a: np.einsum("ii->i", a), "R:4,4"),
    ("einsum transpose", lambda a: np.einsum("ijk->kji", a), "R:2,3,4"),
    ("einsum ellipsis", lambda a, b: np.einsum("...ij,...jk->...ik", a, b), "f4:2,3,4 f4:4,5"),
    ("einsum outer", lambda a, b: np.einsum("i,j->ij", a, b), "f4:3 f4:4"),
    ("einsum elementwise", lambda a, b: np.einsum("ij,ij->ij", a, b), "f4:3,4 f4:3,4"),
    ("einsum three", lambda a, b, c: np.einsum("ij,jk,kl->il", a, b, c), "f4:3,4 f4:4,5 f4:5,2"),
    ("einsum attention", lambda q, k: np.einsum("bqhd,bkhd->bhqk", q, k), "f4:2,3,2,4 f4:2,5,2,4"),
    ("einsum sublists", lambda a, b: np.einsum(a, [0, 1], b, [1, 2], [0, 2]), "f4:3,4 f4:4,5"),
    ("multi_dot", lambda a, b, c: np.linalg.multi_dot([a, b, c]), "f8:2,3 f8:3,4 f8:4,2"),
    ("matrix_power", lambda a: np.linalg.matrix_power(a, 5), "f8:3,3"),
]

REDUCTIONS: list[Row] = [
    *[(n, getattr(np, n), "N:3,4") for n in ("sum", "prod", "mean", "count_nonzero", "cumsum", "cumprod")],
    *[(n, getattr(np, n), "R:3,4") for n in ("max", "min", "ptp", "argmax", "argmin", "median", "var", "std")],
    *[(n, getattr(np, n), "A:3,4") for n in ("any", "all", "sum")],
    *[
        (f"{n} over axes", lambda x, n=n: getattr(np, n)(x, axis=(0, 2)), "R:2,3,4")
        for n in ("sum", "max", "mean", "var")
    ],
    *[
        (f"{n} keepdims", lambda x, n=n: getattr(np, n)(x, axis=-1, keepdims=True), "f4:2,3")
        for n in ("sum", "std", "argmax")
    ],
    *[
        (n, lambda x, n=n: getattr(np, n)(np.where(x > 1, np.nan, x), axis=1), "F:3,6")
        for n in ("nansum", "nanprod", "nanmax", "nanmin", "nanmean", "nanvar", "nanstd", "nancumsum")
    ],
    ("float16 sums", lambda x: (x.sum(), x.mean(), x.var(axis=0)), "f2:40,3"),
    ("sum dtype", lambda x: np.sum(x, dtype=np.float64), "R:3,4"),
    ("sum initial where", lambda x: np.sum(x, initial=3, where=x > 0), "R:3,4"),
    ("max initial where", lambda x: np.max(x, axis=1, initial=0, where=x > 0), "R:3,4"),
    ("mean where", lambda x: np.mean(x, axis=0, where=x > -5), "f4:8,4"),
    ("var ddof", lambda x: (np.var(x, ddof=1), np.std(x, axis=1, ddof=1)), "f8:3,4"),
    ("var of complex", np.var, "c8:3,4"),
    ("argmax axis", lambda x: (x.argmax(axis=0), np.argmin(x, axis=1)), "R:3,4"),
    ("cumsum axis", lambda x: np.cumsum(x, axis=1), "N:3,9"),
    ("cumulative_sum", lambda x: np.cumulative_sum(x, axis=0, include_initial=True), "f4:3,4"),
    ("average", lambda x, w: np.average(x, axis=1, weights=w), "R:3,4 f4:4+"),
    ("median axis", lambda x: np.median(x, axis=0), "R:4,5"),
    ("percentile", lambda x: np.percentile(x, [10, 50, 75.5]), "f8:11"),
    ("quantile axis", lambda x: np.quantile(x, 0.3, axis=1, keepdims=True), "f4:3,7"),
    ("quantile nearest", lambda x: np.quantile(x, 0.3, method="lower"), "f8:9"),
    ("diff", lambda x: np.diff(x, n=2, axis=0), "R:5,3"),
    ("diff prepend", lambda x: np.diff(x, prepend=0), "f4:5"),
    ("cov", np.cov, "f8:3,6"),
    ("corrcoef", np.corrcoef, "f8:3,6"),
    (
        "softmax",
        lambda x: np.exp(x - x.max(-1, keepdims=True)) / np.exp(x - x.max(-1, keepdims=True)).sum(-1)[:, None],
        "F:3,5",
    ),
    ("zero-size sum", lambda x: np.sum(x[:0], axis=0), "R:3,4"),
]

SHAPES: list[Row] = [
    ("reshape", lambda x: (x.reshape(2, 6), np.reshape(x, (-1, 2)), x.reshape(-1)), "A:3,4"),
    ("reshape F", lambda x: (x.reshape((2, 6), order="F"), x.ravel("F")), "A:3,4"),
    ("ravel", lambda x: (x.ravel(), x.flatten(), np.ravel(x)), "A:3,4"),
    ("transpose", lambda x: (x.T, x.transpose(1, 2, 0), np.transpose(x, (2, 0, 1)), x.mT), "A:2,3,4"),
    ("swapaxes", lambda x: (x.swapaxes(0, 2), np.moveaxis(x, 0, -1), np.rollaxis(x, 2)), "A:2,3,4"),
    ("moveaxis", lambda x: np.moveaxis(x, [0, 1], [-1, 0]), "A:2,3,4"),
    ("squeeze", lambda x: (x.squeeze(), np.squeeze(x, axis=0), np.expand_dims(x, (0, 3))), "A:1,3,1"),
    ("broadcast_to", lambda x: (np.broadcast_to(x, (2, 3, 4)), *np.broadcast_arrays(x, x[:1])), "A:3,4"),
    ("atleast", lambda x: (np.atleast_1d(x), np.atleast_2d(x), np.atleast_3d(x)), "A:3"),
    ("atleast_3d", lambda x: (np.atleast_3d(x), np.atleast_2d(x[0, 0])), "A:3,4"),
    ("real imag", lambda z: (z.real, z.imag, np.angle(z), np.conj(z), abs(z)), "c8:3,4"),
    ("real of real", lambda x: (x.real, x.imag), "f4:3"),
    ("diagonal", lambda x: (np.diagonal(x), np.diagonal(x, 1), np.diagonal(x, -1), x.trace()), "A:3,4"),
    ("diagonal axes", lambda x: np.diagonal(x, 0, 0, 2), "f4:3,2,4"),
    ("concatenate", lambda a, b: (np.concatenate([a, b]), np.concatenate((a, b), axis=None)), "A:2,3 A:4,3"),
    ("concatenate mixed", lambda a, b: np.concatenate([a, b], axis=1), "i4:2,3 f4:2,1"),
    ("stack", lambda a, b: (np.stack([a, b]), np.stack([a, b], axis=-1)), "A:2,3 A:2,3"),
    ("vstack hstack", lambda a, b: (np.vstack([a, b]), np.hstack([a, b]), np.dstack([a, b])), "A:3 A:3"),
    ("column_stack", lambda a, b: np.column_stack([a, b]), "f4:3 f4:3,2"),
    ("block", lambda a, b: np.block([[a, b], [b, a]]), "f4:2,2 f4:2,2"),
    ("split", lambda x: (np.split(x, 2), np.array_split(x, 3, axis=1), np.split(x, [1, 3])), "A:4,5"),
    ("hsplit", lambda x: (np.hsplit(x, 2), np.vsplit(x, 2)), "f4:2,4"),
    ("unstack", lambda x: np.unstack(x, axis=1), "f4:2,3"),
    ("tile", lambda x: (np.tile(x, 2), np.tile(x, (2, 1, 3))), "A:2,3"),
    ("repeat", lambda x: (np.repeat(x, 2), np.repeat(x, 3, axis=0), x.repeat([1, 0, 2], axis=1)), "A:2,3"),
    ("roll", lambda x: (np.roll(x, 1), np.roll(x, -2, axis=1), np.roll(x, (1, 2), axis=(0, 1))), "A:3,4"),
    ("flip", lambda x: (np.flip(x), np.flip(x, 0), np.fliplr(x), np.flipud(x)), "A:3,4"),
    ("rot90", lambda x: (np.rot90(x), np.rot90(x, 2), np.rot90(x, -1)), "A:3,4"),
    ("pad", lambda x: (np.pad(x, 1), np.pad(x, ((1, 2), (0, 3)), constant_values=2)), "R:3,4"),
    ("pad sides", lambda x: np.pad(x, ((1, 2), (3, 4)), constant_values=((1, 2), (3, 4))), "f4:2,2"),
    *[
        (f"pad {m}", lambda x, m=m: np.pad(x, ((2, 3), (1, 0)), mode=m), "R:3,4")
        for m in ("edge", "reflect", "symmetric", "wrap")
    ],
    ("pad wraps around", lambda x: (np.pad(x, 7, mode="reflect"), np.pad(x, 8, mode="wrap")), "f4:3"),
    ("sliding windows", lambda x: np.lib.stride_tricks.sliding_window_view(x, (2, 3)), "A:3,5"),
    (
        "sliding windows along an axis twice",
        lambda x: np.lib.stride_tricks.sliding_window_view(x, (2, 2), (1, 1)),
        "A:3,5",
    ),
    ("sliding windows of many", lambda x: np.lib.stride_tricks.sliding_window_view(x, (3, 12), (0, 1)), "f4:5,20"),
    ("sliding windows of an axis", lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, axis=0), "f4:3,5"),
    ("empty arrays", lambda x: (np.diff(x[:0], axis=0), np.resize(x[:0], 3), np.roll(x[:0], 1), x[:0] @ x.T), "R:3,4"),
    ("append delete", lambda x: (np.append(x, x[0]), np.delete(x, 1, axis=0), np.insert(x, 1, 5, axis=1)), "R:3,4"),
    ("insert row", lambda x, y: np.insert(x, 1, y, axis=0), "f4:3,4 f4:4"),
    ("resize", lambda x: np.resize(x, (3, 3)), "f4:2,2"),
    ("tril triu", lambda x: (np.tril(x), np.triu(x, 1), np.tril(x, -1)), "A:3,4"),
    ("tril batched", np.tril, "f4:2,3,3"),
    ("diag", lambda x: (np.diag(x), np.diag(x, 1), np.diag(x, -2), np.diagflat(x)), "A:3"),
    ("diag of matrix", lambda x: (np.diag(x), np.diag(x, k=1)), "A:3,4"),
    ("likes", lambda x: (np.zeros_like(x), np.ones_like(x), np.full_like(x, 3), np.zeros_like(x, shape=(2,))), "A:3,4"),
    ("histogram", lambda x: np.histogram(x, bins=64, range=(-5, 5))[0], "R:7,5"),
    ("histogram edges", lambda x: np.histogram(x, [-4, -1, 0, 2.5, 3]), "R:40"),
    ("histogram density", lambda x: np.histogram(x, bins=5, range=(-4, 4), density=True), "F:40"),
    ("histogram of rows", lambda x: np.histogram(np.round(x), bins=8, range=(-4, 4))[0], "F:30,5"),
    ("histogram one bin", lambda x: (np.histogram(x, [-1, 1])[0], np.histogram(x, 1, (-1, 1))[0]), "R:40"),
    ("histogram weights", lambda x, w: np.histogram(x, 7, (-3, 3), weights=w), "f4:40 N:40"),
    ("histogram_bin_edges", lambda x: np.histogram_bin_edges(x, 4, (0, 1)) + x[:5], "F:40"),
    ("histogram2d", lambda x, y: np.histogram2d(x, y, (7, 5), [(-2, 2), (-1, 3)]), "F:60 F:60"),
    ("histogram2d edges", lambda x, y: np.histogram2d(x, y, [-2, -0.5, 0, 1, 4], density=True), "F:60 F:60"),
    (
        "histogram2d mixed",
        lambda x, y, w: np.histogram2d(x, y, [3, [0, 1, 2]], [(-1, 1), None], None, w),
        "F:60 F:60 f8:60",
    ),
    ("histogramdd", lambda x: np.histogramdd(np.round(x), 4, [(-2, 2)] * 3)[0], "F:60,3"),
    ("mask reductions", lambda x: (x[x > 0].mean(0), x[x[:, 0] > 0].sum(0), x[x[:, 0] > 0].mean(1).sum()), "F:6,4"),
    (
        "mask keepdims",
        lambda x: (np.var(x[x > 0], keepdims=True), x[x[:, 0] > 0].sum(-1, keepdims=True).any(0)),
        "F:6,4",
    ),
    ("mask extremes", lambda x: (x[x > 9].max(initial=1), x[x[:, 1] > 0].min(0, initial=7)), "R:6,4"),
    ("mask types", lambda x: (x[x > 0].astype("i4").sum(), np.count_nonzero(x[x[:, 0] > 0], axis=0)), "R:6,4"),
    ("like=", lambda x: (np.zeros((2, 3), like=x), np.arange(4, like=x), np.eye(3, dtype="f4", like=x)), "f4:3"),
    ("array of tracers", lambda x: np.array([x[0], 2.0, x[1]], like=x), "f8:3"),
    ("astype", lambda x: (x.astype("f4"), x.astype(np.int64), x.astype(bool), x.astype("c8")), "R:3,4"),
    ("view", lambda x: x.view(np.int32), "f4:3"),
    ("meshgrid", np.meshgrid, "f4:3 f4:4"),
    ("linspace", lambda x: np.linspace(x[0], x[1], 5), "f8:2"),
    ("copy", lambda x: (x.copy(), np.copy(x)), "A:3"),
    ("iterate", lambda x: [row.sum() for row in x], "f4:3,4"),
]

SELECTIONS: list[Row] = [
    ("where", lambda x, y: (np.where(x > 0, x, y), np.where(x > 0, 1, x), np.where(x > y, 0.5, 2)), "R:3,4 R:4"),
    ("clip", lambda x: (np.clip(x, -1, 2), x.clip(0), np.clip(x, None, 1), np.clip(x, min=0, max=3)), "f4:3,4"),
    ("clip arrays", lambda x, y: np.clip(x, -y, y), "f4:3,4 f4:4+"),
    ("round", lambda x: (np.round(x), x.round(1), np.round(x, -1)), "F:3,4"),
    ("round integers", lambda x: (np.round(x), np.round(x, -1)), "i4:5"),
    ("take", lambda x: (np.take(x, [0, 5, -1]), x.take([1, 0], axis=1), np.take(x, 1, axis=0)), "A:3,4"),
    ("take modes", lambda x: (np.take(x, [7, -5], mode="wrap"), np.take(x, [7, -5], mode="clip")), "f4:4"),
    ("take from a constant", lambda x, i: x + np.asarray([3.0, 5.0, 7.0], like=i)[abs(i) % 3].sum(), "f8:4 i4:5"),
    ("take traced", lambda x, i: np.take(x, abs(i) % 3, axis=0), "A:3,4 i4:5"),
    ("take_along_axis", lambda x: np.take_along_axis(x, np.argsort(x, axis=1), axis=1), "R:3,5"),
    ("compress", lambda x: np.compress([True, False, True], x, axis=1), "R:3,5"),
    ("extract", lambda x: np.extract(np.arange(15) % 2 == 0, x), "R:3,5"),
    ("unravel_index", lambda x: np.stack(np.unravel_index(5 * np.argmax(x, axis=0), x.shape)), "R:3,5"),
    ("ravel_multi_index", lambda x: np.ravel_multi_index((np.argmax(x, axis=1), [0, 1, 2]), (5, 3)), "R:3,5"),
    ("put_along_axis", lambda x: [np.put_along_axis(x, np.argmax(x, 1)[:, None], 0, 1), x], "f4:3,5"),
    ("put", lambda x: [np.put(x, [0, 5], [1, 2]), x], "R:3,4"),
    ("copyto", lambda x: [np.copyto(x, 7, where=x > 0), x], "R:3,4"),
    ("putmask", lambda x: [np.putmask(x, x > 0, -x), x], "f4:3,4"),
    ("place", lambda x: [np.place(x, x > 0, [1, 2, 3]), x], "R:3,4"),
    ("place a scalar", lambda x: [np.place(x, x, 9), x], "i4:3,4"),
    ("place arrays", lambda x, y: [np.place(x, (x > 0).ravel(), y), x], "f8:3,4 f4:2,2"),
    ("select", lambda x: np.select([x < 0, x > 2], [-x, x**2], 1), "R:3,4"),
    ("choose", lambda x, i: np.choose(i % 3, [x, -x, x * 2]), "f4:4 i4:4+"),
    ("piecewise", lambda x: np.piecewise(x, [x < 0, x >= 1], [lambda v: -v, 7]), "f4:6"),
    ("nan_to_num", lambda x: np.nan_to_num(np.log(x)), "F:8"),
    ("isclose", lambda x: (np.isclose(x, x + 1e-9), np.allclose(x, x), np.array_equal(x, x)), "f8:4"),
    ("fill_diagonal", lambda x: [np.fill_diagonal(x, 5), x], "R:3,4"),
    ("sort", lambda x: (np.sort(x), np.sort(x, axis=0), np.sort(x, axis=None)), "A:3,5"),
    ("argsort", lambda x: np.argsort(x, axis=1, kind="stable"), "R:3,6"),
    ("partition", lambda x: np.sort(np.partition(x, 2)[:2]), "f4:6"),
    ("lexsort", lambda x, y: np.lexsort((x, y)), "i4:9 i4:9"),
    ("sort with nan", lambda x: np.sort(np.sqrt(x)), "F:9"),
    ("searchsorted", lambda x, v: (np.searchsorted(np.sort(x), v), np.searchsorted(np.sort(x), v, "right")), "R:7 R:3"),
    ("digitize", lambda x: np.digitize(x, np.array([-1.0, 0.0, 2.0])), "f8:7"),
    ("digitize falling", lambda x: np.digitize(x, np.array([2.0, 0.0, -1.0]), right=True), "F:7"),
    ("searchsorted of NaN", lambda x, v: _searched(np.append(np.sort(x), np.nan), np.append(v, np.nan)), "F:6 F:4"),
    ("searchsorted sizes", lambda x, v: [_searched(np.sort(x[:n]), v) for n in (0, 1, 2, 3, 8, 9)], "R:9 R:2,5"),
    (
        "searchsorted types",
        lambda x, v: (np.searchsorted(np.sort(x), v), np.searchsorted(np.sort(v), 1.5)),
        "i4:9 f4:5",
    ),
    ("bincount", lambda x: np.bincount(np.abs(x), minlength=12), "i4:50"),
    ("bincount weights", lambda x, w: np.bincount(x, w, minlength=10), "u1:50 R:50"),
    ("isin", lambda x: np.isin(x, [1, 2, 3]), "i4:3,4"),
    ("trapezoid", lambda y: (np.trapezoid(y), np.trapezoid(y, dx=0.5, axis=0)), "f8:4,5"),
    ("gradient", lambda y: (np.gradient(y), np.gradient(y[0], 0.5)), "f8:4,5"),
    ("gradient at edges", lambda y: (*np.gradient(y, edge_order=2), np.gradient(y[:3, 0], edge_order=2)), "R:4,5"),
    ("gradient over coordinates", lambda y: np.gradient(y, np.arange(4) ** 2, np.array([0.0, 0.5, 3, 4, 9])), "R:4,5"),
    ("gradient over an argument", lambda y, x: np.gradient(y, np.cumsum(x * x + 1), axis=0, edge_order=2), "R:4,5 R:4"),
    ("cross", np.cross, "R:4,3 R:4,3"),
    ("polyval", np.polyval, "f8:4 f8:3"),
    ("vander", lambda x: (np.vander(x), np.vander(x, 3, increasing=True)), "f8:4"),
    ("convolve", lambda a, v: tuple(np.convolve(a, v, m) for m in ("full", "same", "valid")), "R:7 R:3"),
    ("convolve even", lambda a, v: tuple(np.convolve(a, v, m) for m in ("full", "same", "valid")), "f8:7 f8:4"),
    ("correlate", lambda a, v: tuple(np.correlate(a, v, m) for m in ("full", "same", "valid")), "C:7 C:3"),
    ("correlate even", lambda a, v: tuple(np.correlate(a, v, m) for m in ("full", "same", "valid")), "f8:7 f8:4"),
    ("interp", lambda x, y: np.interp(x, np.arange(5.0), y), "f8:9 f8:5"),
    ("sinc unwrap", lambda x: (np.sinc(x), np.unwrap(x * 4)), "f8:9"),
    ("fix", lambda x: (np.fix(x), np.isposinf(x), np.isreal(x), np.iscomplex(x)), "f8:4"),
    ("ediff1d", lambda x: np.ediff1d(x, to_begin=[1.0]), "f8:5"),
]

TRANSFORMS: list[Row] = [
    (
        "norm",
        lambda x: (np.linalg.norm(x), np.linalg.norm(x, axis=1), np.linalg.norm(x, 1), np.linalg.norm(x, np.inf)),
        "C:3,4",
    ),
    ("norm orders", lambda x: tuple(np.linalg.norm(x, o) for o in (0, 1, 2, 3, np.inf, -np.inf)), "f8:6"),
    ("vector_norm", lambda x: (np.linalg.vector_norm(x), np.linalg.matrix_norm(x)), "f8:3,4"),
    *[(n, getattr(np.fft, n), "C:3,8") for n in ("fft", "ifft", "fft2", "ifft2", "fftn", "ifftn")],
    *[(n, getattr(np.fft, n), "f4:3,8") for n in ("rfft", "rfft2", "rfftn", "ihfft", "fftshift", "ifftshift")],
    *[(n, getattr(np.fft, n), "c16:3,5") for n in ("irfft", "irfft2", "irfftn", "hfft")],
    ("fft options", lambda x: (np.fft.fft(x, n=5, axis=0, norm="ortho"), np.fft.rfft(x, 12, norm="forward")), "f8:3,8"),
]


def _spd(x: Any) -> Any:
    """A positive definite matrix of ``x``."""
    return x @ np.conjugate(x.mT) + 4 * np.eye(x.shape[-2], dtype=x.dtype)


def _signless(*factors: Any) -> Any:
    """Columns of factors are unique up to their sign: absolute values."""
    return tuple(np.absolute(f) for f in factors)


LINALG: list[Row] = [
    ("cholesky", lambda x: (np.linalg.cholesky(_spd(x)), np.linalg.cholesky(_spd(x), upper=True)), "C:4,4"),
    ("cholesky batched", lambda x: np.linalg.cholesky(_spd(x)), "f8:2,3,3"),
    ("solve", lambda x, b: (np.linalg.solve(_spd(x), b), np.linalg.solve(_spd(x), b[:, 0])), "C:4,4 C:4,2"),
    ("solve batched", lambda x, b: np.linalg.solve(_spd(x), b), "f8:2,3,3 f8:3,1"),
    ("inv", lambda x: np.linalg.inv(_spd(x)), "C:4,4"),
    ("det", lambda x: (np.linalg.det(x), np.linalg.slogdet(x)), "C:4,4"),
    ("det batched", lambda x: (np.linalg.det(x), np.linalg.slogdet(x)), "f8:5,3,3"),
    ("det of integers", np.linalg.det, "i4:3,3"),
    ("qr", lambda x: _signless(*np.linalg.qr(x)), "C:5,3"),
    ("qr wide", lambda x: (*_signless(*np.linalg.qr(x)), np.absolute(np.linalg.qr(x, mode="r"))), "f8:3,5"),
    ("qr complete", lambda x: _signless(*np.linalg.qr(x, mode="complete")), "f8:5,3"),
    ("qr batched", lambda x: np.matmul(*np.linalg.qr(x)), "f8:2,4,3"),
    ("svd", lambda x: _signless(*np.linalg.svd(x)), "f8:4,3"),
    ("svd reduced", lambda x: _signless(*np.linalg.svd(x, full_matrices=False)), "C:4,3"),
    ("svd values", lambda x: (np.linalg.svd(x, compute_uv=False), np.linalg.svdvals(x)), "C:4,3"),
    ("eigh", lambda x: _signless(*np.linalg.eigh(_spd(x))), "C:4,4"),
    ("eigvalsh", lambda x: (np.linalg.eigvalsh(_spd(x)), np.linalg.eigvalsh(_spd(x), "U")), "C:4,4"),
    ("pinv", lambda x: (np.linalg.pinv(x), np.linalg.pinv(x.mT)), "f8:4,3"),
    ("matrix_rank", lambda x: (np.linalg.matrix_rank(x), np.linalg.matrix_rank(np.outer(x[0], x[0]))), "f8:4,3"),
    ("cond", lambda x: (np.linalg.cond(x), np.linalg.cond(_spd(x), 1)), "f8:4,3"),
    ("matrix norms", lambda x: (np.linalg.norm(x, 2), np.linalg.norm(x, "nuc"), np.linalg.norm(x, -2)), "f8:4,3"),
    ("matrix_power of -2", lambda x: np.linalg.matrix_power(_spd(x), -2), "f8:3,3"),
]

FAMILIES: dict[str, list[Row]] = {
    "ufuncs": UFUNCS,
    "products": PRODUCTS,
    "reductions": REDUCTIONS,
    "shapes": SHAPES,
    "selections": SELECTIONS,
    "transforms": TRANSFORMS,
    "linalg": LINALG,
}
ROWS: list[tuple[str, Row]] = [(family, row) for family, rows in FAMILIES.items() for row in rows]


def _argument(text: str, dtype: str, seed: int) -> Any:
    kind, _, dims = text.partition(":")
    positive = dims.endswith("+")
    shape = tuple(int(n) for n in dims.rstrip("+").split(",")) if dims else ()
    values = samples(dtype if kind in KINDS else kind, *shape, seed=seed)
    return (
        np.asarray(np.abs(values) + (0.25 if values.dtype.kind in "fc" else 1)).astype(values.dtype)
        if positive
        else values
    )


def cases(arguments: str) -> Iterator[tuple[str, list[Any]]]:
    """Arguments for every type that the row's letters stand for."""
    texts = arguments.split()
    letters = [t.partition(":")[0] for t in texts if t.partition(":")[0] in KINDS]
    for dtype in KINDS[letters[0]] if letters else ("",):
        yield dtype, [_argument(t, dtype, seed) for seed, t in enumerate(texts)]
