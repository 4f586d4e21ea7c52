"""What one core needs for the arithmetic of a kernel, by the rates that were measured on it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from shardc.compiler.cpu.parallel import chunks
from shardc.compiler.cpu.products.contraction import product_pieces
from shardc.compiler.elements.dot_sides import Sides
from shardc.costs.kernels.flops import instruction_flops
from shardc.costs.kernels.kernel_model import Product
from shardc.costs.kernels.roofline import products_of
from shardc.costs.machines.measured import Products, Rates, at
from shardc.hlo.ir.ir import Instruction, called_computations
from shardc.hlo.ir.opset import ConvDims, Window
from shardc.hlo.ir.types import DType
from shardc.native.llvm.target import host_target

__all__ = ["HostWork", "Part", "element_seconds", "host_work", "inside", "product_seconds"]

#: Names for values, and what is made where it is read.
_FREE = frozenset(
    ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "reshape", "broadcast", "iota", "after-all",
     "slice", "dynamic-slice", "dynamic-update-slice", "copy", "optimization-barrier", "pad", "partition-id",
     "replica-id")
)  # fmt: skip

#: (operation whose rate counts, how many of them) for what was not measured itself. What stands nowhere is simple.
_LIKE: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        "minimum": ("maximum", 1.0), "clamp": ("maximum", 2.0), "compare": ("select", 1.0),
        "cbrt": ("log", 2.0), "tan": ("sine", 2.0), "atan2": ("power", 1.0), "remainder": ("divide", 3.0),
        **dict.fromkeys(("asin", "acos", "atan", "asinh", "acosh", "atanh", "sinh", "cosh"), ("power", 1.0)),
        **dict.fromkeys(("and", "or", "not"), ("xor", 1.0)),
        **dict.fromkeys(("shift-left", "shift-right-arithmetic"), ("shift-right-logical", 1.0)),
        "concatenate-last": ("concatenate", 1.0),
        "map": ("add", 4.0), "scan": ("add", 8.0), "reduce-window": ("add", 1.0), "select-and-scatter": ("add", 4.0),
        "rng-bit-generator": ("xor", 40.0), "rng": ("xor", 60.0),
    }
)  # fmt: skip

#: Types by the one whose rates count for them, and how many of its operations one of theirs takes.
_TYPES: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        "pred": ("s32", 0.25), "s8": ("s32", 0.25), "u8": ("s32", 0.25), "s16": ("s32", 0.5), "u16": ("s32", 0.5),
        "u32": ("s32", 1.0), "s64": ("s32", 2.0), "u64": ("s32", 2.0), "s4": ("s32", 0.25), "u4": ("s32", 0.25),
        "f16": ("f32", 1.5), "bf16": ("f32", 1.5), "c64": ("f32", 4.0), "c128": ("f64", 4.0),
    }
)  # fmt: skip
_OTHER = ("f32", 2.0)

#: Kernels that are called with whole arrays and count by their operations, in additions.
_LIBRARY = frozenset(("fft", "cholesky", "triangular-solve", "custom-call", "topk"))


@dataclass(frozen=True, slots=True)
class Part:
    """Seconds of one core for a product or a convolution, which is cut into so many ``pieces``."""

    seconds: float
    pieces: int


@dataclass(frozen=True, slots=True)
class HostWork:
    """Seconds of one core for what is done element by element, and the products and convolutions."""

    elements: float = 0.0
    parts: tuple[Part, ...] = ()

    @property
    def empty(self) -> bool:
        return not self.elements and not self.parts


def host_work(i: Instruction, rates: Rates) -> HostWork:
    """The work of a kernel for ``i``, an operation or a fusion, with the rates of one core."""
    elements = 0.0
    parts: list[Part] = []
    for op in inside(i):
        if op.opcode == "dot":
            parts.append(_product(op, rates))
        elif op.opcode == "convolution":
            pieces = chunks(products=instruction_flops(op) / 2)
            parts.append(Part(_convolution_seconds(op, rates), pieces))
        else:
            elements += element_seconds(op, rates)
    return HostWork(elements, tuple(parts))


def inside(i: Instruction) -> Iterable[Instruction]:
    """The operations of a kernel."""
    return i.attrs["calls"] if i.opcode == "fusion" else (i,)


def element_seconds(op: Instruction, rates: Rates) -> float:
    """Seconds of one core for an operation that is no product: elements times a rate."""
    opcode = op.opcode
    if opcode in _FREE:
        return 0.0
    if opcode == "reduce":
        return _reduction_seconds(op, rates)
    if opcode in ("while", "conditional", "call"):
        return sum(element_seconds(x, rates) for _, c in called_computations(op) for x in c)
    shapes = [s for s in op.shape.leaves() if s.is_array]
    size = max((s.size for s in shapes), default=0)
    if opcode == "concatenate" and shapes[0].dims[op.attrs["dimensions"][0] + 1 :] in ((), (1,)):
        opcode = "concatenate-last"
    if opcode == "convert":
        return size * _conversion(op.operands[0].shape.dtype, shapes[0].dtype, rates)
    dtype = op.operands[0].shape.dtype if opcode in ("compare", "scatter", "sort") else shapes[0].dtype
    if opcode == "scatter":
        size = op.operands[2].shape.size
    elif opcode == "sort":
        (dim,) = op.attrs["dimensions"]
        size = round(op.operands[0].shape.size * max(1.0, math.log2(max(2, op.operands[0].shape.dims[dim]))))
    elif opcode in _LIBRARY or opcode in ("reduce-window", "select-and-scatter", "scan", "map"):
        return instruction_flops(op) * _rate("add", dtype, rates)
    return size * _rate(opcode, dtype, rates)


def _rate(opcode: str, dtype: DType, rates: Rates) -> float:
    """Seconds per element, as measured, or like what was measured."""
    found = rates.operations.get(f"{opcode} {dtype.name}")
    if found is not None:
        return found
    name, factor = _TYPES.get(dtype.name, (dtype.name, 1.0))
    like, times = _LIKE.get(opcode, (opcode, 1.0))
    for key, scale in (
        (f"{opcode} {name}", factor),
        (f"{like} {dtype.name}", times),
        (f"{like} {name}", times * factor),
        (f"{like} f32", times * _OTHER[1]),
        (f"add {name}", times * factor),
    ):
        if key in rates.operations:
            return rates.operations[key] * scale
    return rates.operations.get("add f32", 0.0) * times


def _conversion(a: DType, b: DType, rates: Rates) -> float:
    for key in (f"convert {a.name} {b.name}", f"convert {b.name} {a.name}"):
        if key in rates.operations:
            return rates.operations[key]
    return rates.operations.get("convert f32 s32", 0.0)


def _reduction_seconds(op: Instruction, rates: Rates) -> float:
    """By the dimensions that go: the last one, others, or all."""
    shape = op.operands[0].shape
    if not shape.is_array or not shape.size:
        return 0.0
    gone = set(op.attrs["dimensions"])
    long = [d for d, n in enumerate(shape.dims) if n > 1]
    left = [d for d in long if d not in gone]
    kind = "reduce-all" if not left else "reduce-rows" if long and long[-1] in gone else "reduce-columns"
    operations = [x for x in op.attrs["to_apply"] if x.opcode not in _FREE] if "to_apply" in op.attrs else []
    # Sums are what was measured; what else is done to each element comes on top.
    other = sum(_rate(x.opcode, x.shape.dtype, rates) for x in operations if x.opcode != "add")
    inputs = max(1, len(op.operands) // 2)
    rows = shape.size // shape.dims[long[-1]] if kind == "reduce-rows" else 0
    row = rates.operations.get("row f32", 0.0)
    return inputs * (shape.size * _rate(kind, shape.dtype, rates) + rows * row) + shape.size * other


# -- products ------------------------------------------------------------------------------------------------------


def _product(dot: Instruction, rates: Rates) -> Part:
    if not dot.shape.size:
        return Part(0.0, 1)
    seconds = sum(p.batch * p.terms * product_seconds(p, _layout(dot), rates) for p in products_of(dot))
    return Part(seconds, product_pieces(dot, host_target()))


def _layout(dot: Instruction) -> str:
    """Which side lies transposed, as the library sees it."""
    sides = Sides(dot)
    left, right = sides.left.as_it_lies(), sides.right.as_it_lies()
    if right is not None and right.transposed:
        return " right"
    return " left" if left is not None and left.transposed else ""


def product_seconds(p: Product, layout: str, rates: Rates) -> float:
    """One batch's: the time per operation between the measured sizes, along lines in logarithms.

    Of products with a side that lies transposed (``" left"``, ``" right"``) fewer sizes are measured: what counts is
    how much longer they take than plain ones there.
    """
    dtype = p.rate if p.rate in rates.products else "f64" if p.rate in ("f64", "c128") else "f32"
    points = rates.products.get(dtype)
    if not points:
        return 2.0 * p.m * p.n * p.k * rates.operations.get("multiply f32", 0.0)
    sizes = (p.m, p.n, p.k)
    per_operation = _interpolated(points, sizes)
    turned = rates.products.get(f"f32{layout}") if layout else None
    if turned:
        plain = rates.products["f32"]
        per_operation *= _interpolated(_ratios(turned, plain), sizes)
    return per_operation * p.m * p.n * p.k


@lru_cache(maxsize=16)
def _ratios(turned: Products, plain: Products) -> Products:
    """How often the time of plain products ``turned`` ones of the same size take, as points whose time per operation
    is that."""
    found = []
    for m, n, k, seconds in turned:
        ratio = seconds / (_interpolated(plain, (int(m), int(n), int(k))) * m * n * k)
        found.append((m, n, k, max(ratio, 0.5) * m * n * k))
    return tuple(found)


@lru_cache(maxsize=64)
def _grid(points: Products) -> tuple[tuple[tuple[float, ...], ...], Mapping[tuple[float, float, float], float]]:
    axes = tuple(tuple(sorted({point[d] for point in points})) for d in range(3))
    return axes, {(m, n, k): math.log(s / (m * n * k)) for m, n, k, s in points}


@lru_cache(maxsize=65536)
def _interpolated(points: Products, sizes: tuple[int, int, int]) -> float:
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


def _convolution_seconds(op: Instruction, rates: Rates) -> float:
    """By the kind of kernel that computes it, and channels."""
    kind, channels = _convolution_kind(op)
    flops = float(instruction_flops(op))
    curve = rates.convolutions.get(kind) or rates.convolutions.get("patches")
    if curve is None:
        return flops / 2 * rates.operations.get("multiply f32", 0.0)
    slower = 2.0 if op.shape.dtype.name in ("f64", "c128") else 1.0
    return slower * flops / at(curve, channels)


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
