"""NumPy meaning: factorisations, FFT and batch normalisation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from shardc.hlo.evaluate.interpreter import Interpreter, OpMeaning
from shardc.hlo.evaluate.values import COMPUTE, Array, Value, cast
from shardc.hlo.ir.ir import Instruction

__all__ = ["ROWS"]


def _wide(x: Array) -> Array:
    return x.astype(COMPUTE[x.dtype], copy=False)


def _adjoint(x: Array) -> Array:
    return np.conj(np.swapaxes(x, -1, -2))


def _cholesky(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    """Column by column; a matrix that is not positive definite gives NaN, the other triangle is zero."""
    x = _wide(operands[0])
    lower = i.attrs.get("lower", False)
    a = np.tril(x) if lower else np.tril(_adjoint(x))
    out = np.zeros_like(a)
    for j in range(a.shape[-1]):
        row = out[..., j, :j]
        pivot = a[..., j, j].real - np.sum(np.abs(row) ** 2, axis=-1)
        root = np.where(pivot > 0, np.sqrt(np.abs(pivot)), np.nan)
        below = a[..., j:, j] - np.matmul(out[..., j:, :j], np.conj(row)[..., None])[..., 0]
        out[..., j:, j] = below / root[..., None]
        out[..., j, j] = root
    bad = np.isnan(out).any(axis=(-1, -2), keepdims=True)
    out = np.where(bad & np.tril(np.ones(a.shape[-2:], np.bool_)), np.nan, out)
    return cast(out if lower else _adjoint(out), m.storage_type(i.shape.dtype))


def _triangular_solve(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    """op(a) x = b, or x op(a) = b with ``left_side=false``; one row of the solution after the other."""
    a, b = (_wide(x) for x in operands)
    left, lower = i.attrs.get("left_side", False), i.attrs.get("lower", False)
    transpose = i.attrs.get("transpose_a", "NO_TRANSPOSE")
    if transpose == "TRANSPOSE":
        a, lower = np.swapaxes(a, -1, -2), not lower
    elif transpose == "ADJOINT":
        a, lower = _adjoint(a), not lower
    if not left:
        # x a = b is the same as transpose(a) transpose(x) = transpose(b).
        a, b, lower = np.swapaxes(a, -1, -2), np.swapaxes(b, -1, -2), not lower
    x = np.array(b)
    size = a.shape[-1]
    for k in range(size) if lower else reversed(range(size)):
        done = slice(0, k) if lower else slice(k + 1, size)
        known = np.matmul(a[..., k : k + 1, done], x[..., done, :])
        row = b[..., k : k + 1, :] - known
        x[..., k : k + 1, :] = row if i.attrs.get("unit_diagonal", False) else row / a[..., k : k + 1, k : k + 1]
    return cast(x if left else np.swapaxes(x, -1, -2), m.storage_type(i.shape.dtype))


_TRANSFORMS: Mapping[str, Callable[..., Array]] = {
    "FFT": np.fft.fftn,
    "IFFT": np.fft.ifftn,
    "RFFT": np.fft.rfftn,
    "IRFFT": np.fft.irfftn,
}


def _fft(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    """In double precision whatever the type: the last places are the definition's."""
    lengths = i.attrs["fft_length"]
    axes = tuple(range(-len(lengths), 0))
    if 0 in i.shape.dims or operands[0].size == 0:
        return np.zeros(i.shape.dims, m.storage_type(i.shape.dtype))
    wide = operands[0].astype(np.complex128 if operands[0].dtype.kind == "c" else np.float64)
    return cast(_TRANSFORMS[i.attrs["fft_type"]](wide, s=lengths, axes=axes), m.storage_type(i.shape.dtype))


def _along(x: Array, rank: int, axis: int) -> Array:
    shape = [1] * rank
    shape[axis] = -1
    return x.reshape(shape)


def _normal(i: Instruction, x: Array, mean: Array, variance: Array) -> Array:
    """(x - mean) / sqrt(variance + epsilon), statistics along the feature dimension."""
    axis = i.attrs["feature_index"]
    epsilon = variance.dtype.type(i.attrs["epsilon"])
    return np.asarray((x - _along(mean, x.ndim, axis)) / np.sqrt(_along(variance, x.ndim, axis) + epsilon))


def _inference(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    x, scale, offset, mean, variance = (_wide(v) for v in operands)
    axis = i.attrs["feature_index"]
    y = _normal(i, x, mean, variance) * _along(scale, x.ndim, axis) + _along(offset, x.ndim, axis)
    return cast(y, m.storage_type(i.shape.dtype))


def _training(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
    x, scale, offset = (_wide(v) for v in operands)
    axis = i.attrs["feature_index"]
    others = tuple(d for d in range(x.ndim) if d != axis)
    mean, variance = x.mean(axis=others, dtype=x.dtype), x.var(axis=others, dtype=x.dtype)
    y = _normal(i, x, mean, variance) * _along(scale, x.ndim, axis) + _along(offset, x.ndim, axis)
    return tuple(cast(v, m.storage_type(s.dtype)) for v, s in zip((y, mean, variance), i.shape.elements, strict=True))


def _grad(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
    """Gradients of batch-norm-training with respect to operand, scale and offset."""
    x, scale, mean, variance, grad = (_wide(v) for v in operands)
    axis = i.attrs["feature_index"]
    others = tuple(d for d in range(x.ndim) if d != axis)
    count = x.dtype.type(x.size // max(x.shape[axis], 1))
    normal = _normal(i, x, mean, variance)
    grad_offset, grad_scale = grad.sum(axis=others), (grad * normal).sum(axis=others)
    factor = _along(scale / np.sqrt(variance + variance.dtype.type(i.attrs["epsilon"])), x.ndim, axis) / count
    inner = count * grad - _along(grad_offset, x.ndim, axis) - normal * _along(grad_scale, x.ndim, axis)
    results = (factor * inner, grad_scale, grad_offset)
    return tuple(cast(v, m.storage_type(s.dtype)) for v, s in zip(results, i.shape.elements, strict=True))


ROWS: Mapping[str, OpMeaning] = {
    "cholesky": OpMeaning(_cholesky),
    "triangular-solve": OpMeaning(_triangular_solve),
    "fft": OpMeaning(_fft),
    "batch-norm-training": OpMeaning(_training),
    "batch-norm-inference": OpMeaning(_inference),
    "batch-norm-grad": OpMeaning(_grad),
}
