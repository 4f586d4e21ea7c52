"""Seconds of one core of a calibrated computer for operations, products and convolutions, by measured rates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

from shardc.costs.machines.measured import Products, Rates, interpolate
from shardc.costs.ops.op_cost import HostRates, MatrixProduct
from shardc.costs.ops.table import OP_COSTS, instruction_flops
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.opset import ConvDims, Window

__all__ = ["convolution_seconds", "element_seconds", "product_seconds"]


def element_seconds(op: Instruction, rates: Rates) -> float:
    """Seconds of one core for an operation that is no product, and for what it calls: elements times a rate."""
    return OP_COSTS[op.opcode].host(op, HostRates(rates, OP_COSTS))


def product_seconds(p: MatrixProduct, layout: str, rates: Rates) -> float:
    """One batch's: the time per operation between the measured sizes, along lines in logarithms.

    Of products with a side that lies transposed (``" left"``, ``" right"``) fewer sizes are measured: what counts is
    how much longer they take than plain ones there.
    """
    dtype = p.rate if p.rate in rates.products else "f64" if p.rate in ("f64", "c128") else "f32"
    points = rates.products.get(dtype)
    if not points:
        return 2.0 * p.m * p.n * p.k * rates.operations.get("multiply f32", 0.0)
    sizes = (p.m, p.n, p.k)
    per_operation = _interpolate(points, sizes)
    turned = rates.products.get(f"f32{layout}") if layout else None
    if turned:
        plain = rates.products["f32"]
        per_operation *= _interpolate(_ratios(turned, plain), sizes)
    return per_operation * p.m * p.n * p.k


@lru_cache(maxsize=16)
def _ratios(turned: Products, plain: Products) -> Products:
    """How often the time of plain products ``turned`` ones of the same size take, as points whose time per operation
    is that."""
    found = []
    for m, n, k, seconds in turned:
        ratio = seconds / (_interpolate(plain, (int(m), int(n), int(k))) * m * n * k)
        found.append((m, n, k, max(ratio, 0.5) * m * n * k))
    return tuple(found)


@lru_cache(maxsize=64)
def _grid(points: Products) -> tuple[tuple[tuple[float, ...], ...], Mapping[tuple[float, float, float], float]]:
    axes = tuple(tuple(sorted({point[d] for point in points})) for d in range(3))
    return axes, {(m, n, k): math.log(s / (m * n * k)) for m, n, k, s in points}


@lru_cache(maxsize=65536)
def _interpolate(points: Products, sizes: tuple[int, int, int]) -> float:
    """Seconds per multiplication at ``sizes``: trilinear in logarithms between the points of a grid; outside, the
    nearest within. Below the smallest size a dimension takes as long as that size."""
    axes, values = _grid(points)
    ways: list[tuple[tuple[float, ...], float]] = [((), 1.0)]
    stretched = 1.0
    for axis, size in zip(axes, sizes, strict=True):
        if size <= axis[0]:
            stretched *= axis[0] / max(1, size)
            ends: list[tuple[float, float]] = [(axis[0], 1.0)]
        elif size >= axis[-1]:
            ends = [(axis[-1], 1.0)]
        else:
            n = next(n for n, x in enumerate(axis) if x >= size)
            part = math.log(size / axis[n - 1]) / math.log(axis[n] / axis[n - 1])
            ends = [(axis[n - 1], 1.0 - part), (axis[n], part)]
        ways = [((*corner, x), weight * w) for corner, weight in ways for x, w in ends if w]
    mean = sum(w * values[(c[0], c[1], c[2])] for c, w in ways)
    return math.exp(mean) * min(stretched, 8.0)


# -- convolutions --------------------------------------------------------------------------------------------------


def convolution_seconds(op: Instruction, rates: Rates) -> float:
    """By the kind of kernel that computes it, and channels."""
    kind, channels = _convolution_kind(op)
    flops = float(instruction_flops(op))
    curve = rates.convolutions.get(kind) or rates.convolutions.get("patches")
    if curve is None:
        return flops / 2 * rates.operations.get("multiply f32", 0.0)
    slower = 2.0 if op.shape.dtype.name in ("f64", "c128") else 1.0
    return slower * flops / interpolate(curve, channels)


def _convolution_kind(op: Instruction) -> tuple[str, float]:
    """Which curve holds, and where on it: the geometric mean of channels that are summed and features that are made."""
    labels: ConvDims = op.attrs["dim_labels"]
    window = op.attrs.get("window", Window(())).dims
    kernel = op.operands[1].shape
    spatial = [op.shape.dims[d] for d in labels.out_spatial]
    sizes = [w.size for w in window]
    gradient = math.prod(sizes) > 4 * max(1, math.prod(spatial))
    groups = op.attrs.get("feature_group_count", 1) * op.attrs.get("batch_group_count", 1)
    inner, features = kernel.dims[labels.rhs_input_feature], op.shape.dims[labels.out_feature]
    channels = op.shape.dims[labels.out_batch] if gradient else inner
    if groups > 1 and features // groups <= 2:
        return ("channels", float(groups))
    shape = spatial if gradient else sizes
    plain = all(w.stride == w.lhs_dilate == w.rhs_dilate == 1 for w in window)
    mean = math.sqrt(max(1, channels) * max(1, features))
    wide = min(channels, features) >= 16 and groups == 1
    kind = "tiles" if plain and shape == [3, 3] and wide else "patches"
    return (f"{kind} gradient" if gradient else kind, mean)
