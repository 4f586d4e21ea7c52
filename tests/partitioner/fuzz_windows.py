"""Steps of a growing program that slide windows: convolutions, reductions over windows, cumulative sums."""

from __future__ import annotations

import numpy as np
from fuzz_grow import Grown

from shardc.hlo.ir.build import Builder, binary_computation
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.opset import ConvDims, Window, WindowDim
from shardc.hlo.ir.types import array_shape

__all__ = ["convolution", "cumulative", "reduce_window", "select_and_scatter"]

ADD = ("add", 0.0)


def window_dim(g: Grown, n: int, size: int | None = None, *, dilate: bool = True) -> WindowDim:
    """A window dimension that leaves at least one position over ``n`` elements."""
    some = [1, 1, 1, 2]
    for _ in range(20):
        k = size or g.r.randint(1, 4)
        lhs, rhs = (g.r.choice(some), g.r.choice(some)) if dilate else (1, 1)
        reversal = dilate and g.r.random() < 0.2
        w = WindowDim(k, g.r.choice([1, 1, 2, 3]), g.r.randint(0, 4), g.r.randint(0, 4), lhs, rhs, reversal)
        if (n - 1) * lhs + 1 + w.pad_low + w.pad_high >= (k - 1) * rhs + 1:
            return w
    k = size or 1
    return WindowDim(k, pad_low=k, pad_high=k)


def convolution(g: Grown, x: Instruction) -> None:
    if x.shape.rank < 3:
        return
    order = list(range(x.shape.rank))
    g.r.shuffle(order)
    batch, feature, *spatial = order
    n, f = x.shape.dims[batch], x.shape.dims[feature]
    o = g.r.choice([1, 2, 3, 4, 6])
    divisors = [k for k in (1, 2, 3, 4, 6, 8) if o % k == 0]
    features = g.r.choice([1, *(k for k in divisors if f % k == 0)])
    batches = g.r.choice([1, *(k for k in divisors if n % k == 0)]) if features == 1 else 1
    dims = [window_dim(g, x.shape.dims[d]) for d in spatial]
    y = g.fresh([w.size for w in dims] + [f // features, o])
    out = list(range(x.shape.rank))
    g.r.shuffle(out)
    labels = ConvDims(
        batch, feature, tuple(spatial), len(spatial), len(spatial) + 1, tuple(range(len(spatial))),
        out[0], out[1], tuple(out[2:]),
    )  # fmt: skip
    made = g.b.add(
        "convolution", x, y, window=Window(tuple(dims)), dim_labels=labels,
        feature_group_count=features, batch_group_count=batches,
    )  # fmt: skip
    if g.fits(made.shape.dims) and all(made.shape.dims):
        g.keep(made, g.bound(x) * g.bound(y) * f * int(np.prod([w.size for w in dims])))


def reduce_window(g: Grown, x: Instruction) -> None:
    op, init = g.r.choice([ADD, ("maximum", -np.inf), ("minimum", np.inf)])
    dims = [window_dim(g, n) if g.r.random() < 0.6 else WindowDim(1) for n in x.shape.dims]
    dims = [WindowDim(w.size, w.stride, w.pad_low, w.pad_high, w.lhs_dilate, w.rhs_dilate) for w in dims]
    out = g.b.add(
        "reduce-window",
        x,
        g.b.constant(init, "f32"),
        window=Window(tuple(dims)),
        to_apply=binary_computation(op, "f32"),
    )
    low, high = g.b.constant(-4.0, "f32"), g.b.constant(4.0, "f32")
    if all(out.shape.dims) and g.fits(out.shape.dims):
        g.keep(g.b.add("clamp", low, out, high), 4)


def cumulative(g: Grown, x: Instruction) -> None:
    if not x.shape.rank:
        return
    d = g.r.randrange(x.shape.rank)
    n = x.shape.dims[d]
    low, high = g.r.choice([(n - 1, 0), (0, n - 1)])
    dims = tuple(WindowDim(n, 1, low, high) if e == d else WindowDim(1) for e in range(x.shape.rank))
    out = g.b.add(
        "reduce-window", x, g.b.constant(0.0, "f32"), window=Window(dims), to_apply=binary_computation("add", "f32")
    )
    g.keep(out, g.bound(x) * n)


def select_and_scatter(g: Grown, x: Instruction) -> None:
    if not x.shape.rank:
        return
    dims = Window(tuple(window_dim(g, n, dilate=False) if g.r.random() < 0.6 else WindowDim(1) for n in x.shape.dims))
    low = g.b.constant(-np.inf, "f32")
    shape = g.b.add("reduce-window", x, low, window=dims, to_apply=binary_computation("maximum", "f32")).shape
    if not all(shape.dims) or not g.fits(shape.dims):
        return
    source = g.fresh(shape.dims)
    c = Builder("at_least")
    at_least = c.build(
        c.add("compare", c.parameter(array_shape("f32")), c.parameter(array_shape("f32")), direction="GE")
    )
    out = g.b.add(
        "select-and-scatter", x, source, g.b.constant(0.0, "f32"), window=dims,
        select=at_least, scatter=binary_computation("add", "f32"),
    )  # fmt: skip
    g.keep(out, g.bound(source) * max(1, shape.size))
