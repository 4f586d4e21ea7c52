"""NumPy meaning: convolution and windowed reductions, as views that show every window."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from shardc.hlo.evaluate.body import apply_body, fold_in_order
from shardc.hlo.evaluate.interpreter import Interpreter, OpMeaning
from shardc.hlo.evaluate.ops.contraction import product_type
from shardc.hlo.evaluate.ops.indexing import scatter_into
from shardc.hlo.evaluate.ops.reduction import one_or_tuple
from shardc.hlo.evaluate.ops.shape import pad_array
from shardc.hlo.evaluate.values import Array, Value, cast
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.opset import ConvDims, Window, WindowDim

__all__ = ["ROWS"]


def _windows(x: Array, dims: Sequence[WindowDim], value: Array) -> Array:
    """Every window of the trailing dimensions of ``x``: (leading..., positions..., within the window...)."""
    lead = x.ndim - len(dims)
    extents = [(w.size - 1) * w.rhs_dilate + 1 for w in dims]
    counts = [_count(n, e, w) for n, e, w in zip(x.shape[lead:], extents, dims, strict=True)]
    if 0 in counts or any(w.size == 0 for w in dims):
        return np.zeros((*x.shape[:lead], *counts, *(w.size for w in dims)), x.dtype)
    padding = [(0, 0, 0)] * lead + [(w.pad_low, w.pad_high, w.lhs_dilate - 1) for w in dims]
    padded = pad_array(x, padding, value)
    axes = tuple(range(lead, x.ndim))
    # Strides are NumPy's business, and it does not know all our types: bytes, or words, go through it.
    raw = padded if padded.dtype.kind == "c" else padded.view(f"u{padded.dtype.itemsize}")
    view = sliding_window_view(raw, extents, axis=axes).view(padded.dtype) if dims else padded
    steps = [slice(None)] * lead + [slice(None, None, w.stride) for w in dims]
    inner = [slice(None, None, w.rhs_dilate) for w in dims]
    flips = [slice(None, None, -1) if w.reversal else slice(None) for w in dims]
    return view[(*steps, *inner)][(..., *flips)]


def _count(size: int, extent: int, w: WindowDim) -> int:
    """How many windows of ``extent`` there are along a dimension."""
    padded = max((size - 1) * w.lhs_dilate + 1, 0) + w.pad_low + w.pad_high
    return 0 if padded < extent else (padded - extent) // w.stride + 1


def _convolution(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    """Windows of the input as a matrix, times the kernel; groups are a batch of such products."""
    kind = product_type(m, i, *operands)
    d: ConvDims = i.attrs["dim_labels"]
    window: Window = i.attrs.get("window") or Window(())
    features, batches = i.attrs.get("feature_group_count", 1), i.attrs.get("batch_group_count", 1)
    lhs, rhs = (x.astype(kind, copy=False) for x in operands)
    lhs = lhs.transpose(d.lhs_batch, d.lhs_feature, *d.lhs_spatial)
    rhs = rhs.transpose(d.rhs_input_feature, d.rhs_output_feature, *d.rhs_spatial)
    view = _windows(lhs, window.dims, np.zeros((), kind))
    n, c = lhs.shape[:2]
    rank = len(window.dims)
    positions, kernel = view.shape[2 : 2 + rank], rhs.shape[2:]
    groups, out_features = features * batches, rhs.shape[1]
    # (batch groups, n, feature groups, c, positions, kernel) -> (groups, n * positions, c * kernel)
    cut = view.reshape(batches, n // batches, features, c // features, *positions, *kernel)
    order = [0, 2, 1, *range(4, 4 + rank), 3, *range(4 + rank, 4 + 2 * rank)]
    left = cut.transpose(order).reshape(groups, n // batches * math.prod(positions), c // features * math.prod(kernel))
    right = rhs.reshape(c // features, groups, out_features // groups, *kernel)
    right = right.transpose(1, 0, *range(3, 3 + rank), 2).reshape(groups, left.shape[2], out_features // groups)
    product = np.matmul(left, right).reshape(groups, n // batches, *positions, out_features // groups)
    result = np.moveaxis(product, 0, -2).reshape(n // batches, *positions, out_features)
    places = (d.out_batch, *d.out_spatial, d.out_feature)
    return cast(result.transpose([places.index(k) for k in range(rank + 2)]), m.storage_type(i.shape.dtype))


def _reduce_window(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
    """The elements of each window in row-major order; padding and the holes of dilation take no part."""
    count = len(operands) // 2
    dims: Sequence[WindowDim] = i.attrs["window"].dims if i.attrs.get("window") else ()
    arrays, inits = operands[:count], operands[count:]
    views = [_windows(x, dims, v.astype(x.dtype)) for x, v in zip(arrays, inits, strict=True)]
    places = views[0].shape[: len(dims)]
    inside = None
    if any(w.pad_low > 0 or w.pad_high > 0 or w.lhs_dilate > 1 for w in dims):
        inside = _windows(np.broadcast_to(np.True_, arrays[0].shape), dims, np.asarray(False))
    offsets = list(np.ndindex(*(w.size for w in dims)))
    steps = ([v[(..., *at)] for v in views] for at in offsets)
    taking = None if inside is None else (inside[(..., *at)] for at in offsets)
    return one_or_tuple(i, fold_in_order(m, i.attrs["to_apply"], steps, inits, places, taking))


def _select_and_scatter(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Array:
    """Each window's selected element receives its element of the source."""
    x, source, init = operands
    if not x.size:
        return np.zeros(x.shape, x.dtype)
    dims = i.attrs["window"].dims
    rank, size = len(dims), math.prod(w.size for w in dims)
    numbers = _windows(np.arange(x.size).reshape(x.shape), dims, np.array(-1)).reshape(*source.shape, size)
    best = np.full(source.shape, -1)
    flat = x.reshape(-1)
    for k in range(size if rank else 1):
        candidate = numbers[..., k]
        keep = np.broadcast_to(apply_body(m, i.attrs["select"], [flat[best], flat[candidate]])[0], best.shape)
        best = np.where((candidate >= 0) & ((best < 0) | ~keep), candidate, best)
    where, values = best.reshape(-1), source.reshape(-1)
    chosen = where >= 0
    start = np.broadcast_to(init, x.shape)
    return scatter_into(m, i.attrs["scatter"], [start], where[chosen], [values[chosen]])[0]


ROWS: Mapping[str, OpMeaning] = {
    "convolution": OpMeaning(_convolution),
    "reduce-window": OpMeaning(_reduce_window),
    "select-and-scatter": OpMeaning(_select_and_scatter),
}
