"""What computing takes on a device: the work of instructions, alone or fused, and its time by the kernel model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from shardc.costs.kernels.flops import MOVES, instruction_flops
from shardc.costs.kernels.kernel_model import Product, Work, busy_seconds
from shardc.costs.kernels.traffic import Traffic, instruction_traffic
from shardc.costs.machines.device import Device
from shardc.hlo.ir.ir import Computation, Instruction, called_computations
from shardc.hlo.ir.lapack import LAPACK
from shardc.hlo.ir.opset import COLLECTIVES, OPS, ConvDims

__all__ = ["compute_seconds", "instruction_work", "products_of"]

#: Instructions that take no time: names for values, and what is made where it is read.
_FREE = frozenset(
    ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "reshape", "broadcast", "iota", "after-all")
)

#: Elementwise operations by what they cost (`kernel_model`); the others are simple.
_CLASSES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("divide", "remainder", "sqrt", "rsqrt", "cbrt", "exponential", "log", "logistic"), "special"),
        **dict.fromkeys(("exponential-minus-one", "log-plus-one", "tanh"), "special"),
        **dict.fromkeys(("power", "atan2", "erf", "sine", "cosine", "tan", "sinh", "cosh"), "long"),
        **dict.fromkeys(("asin", "acos", "atan", "asinh", "acosh", "atanh"), "long"),
    }
)

#: Passes over the data of a sort: as many as a radix sort of four-byte keys by their bytes takes.
_SORT_PASSES = 4

#: Columns of a matrix that a factorisation treats at a time; each time it waits for what it did before.
_PANEL = 64

_SORTS = frozenset({"sort", "topk"})
_FACTORISATIONS = frozenset({"cholesky", "triangular-solve"})


def compute_seconds(device: Device, computation: Computation) -> float:
    """Seconds for everything in ``computation`` but its collectives, nothing fused and no pause between kernels;
    loops in it count once."""
    total = 0.0
    for i in computation:
        for role, inner in called_computations(i):
            if role != "to_apply" or i.opcode == "call":
                total += compute_seconds(device, inner)
        if i.opcode in _FREE or i.opcode in COLLECTIVES or i.shape.is_tuple:
            continue
        new = i.operands[1] if i.opcode == "dynamic-update-slice" else None
        total += busy_seconds(device, instruction_work(i, instruction_traffic(i, new)))
    return total


def instruction_work(i: Instruction, traffic: Traffic) -> Work:
    """The work of one kernel for ``i``, a fusion or an operation of its own, that moves ``traffic``.

    Example: a fusion of a product of f32[8,16] and f32[16,4] and its exponential has one `Product` and 32 special
    operations.
    """
    inside: Iterable[Instruction] = i.attrs["calls"] if i.opcode == "fusion" else (i,)
    products: list[Product] = []
    operations: Counter[str] = Counter()
    rows: list[tuple[int, int]] = []
    flops, launches, passes = 0, 1, 1
    after: set[Instruction] = set()
    chained = False
    for op in inside:
        count = instruction_flops(op)
        flops += count
        made = products_of(op)
        products.extend(made)
        follows = not after.isdisjoint(op.operands)
        chained = chained or (follows and bool(made))
        if follows or made:
            after.add(op)
        if not made:
            operations.update(_operations(op, count))
        rows.extend(_rows(op))
        if op.opcode in _SORTS:
            launches, passes = max(launches, _SORT_PASSES), max(passes, _SORT_PASSES)
        elif op.opcode in _FACTORISATIONS or op.attrs.get("custom_call_target") in LAPACK:
            launches = max(launches, -(-max(op.operands[0].shape.dims[-1:], default=1) // _PANEL))
    return Work(
        tuple(products),
        tuple(sorted(operations.items())),
        traffic.read * passes,
        traffic.written * passes,
        _dtype(i),
        tuple(rows),
        launches,
        flops,
        chained,
    )


def _dtype(i: Instruction) -> str:
    return next((s.dtype.name for s in i.shape.leaves() if s.is_array), "f32")


def _operations(op: Instruction, flops: int) -> dict[str, float]:
    """Operations of the vector unit by class; conversions take one each, what only moves takes none."""
    if OPS[op.opcode].family == "elementwise":
        if op.opcode == "copy" or not op.shape.is_array:
            return {}
        size = op.shape.size if op.opcode in MOVES else flops
        if op.opcode == "divide" and op.operands[1].opcode == "broadcast":  # by one reciprocal for many
            return {"simple": float(size), "special": float(op.operands[1].operands[0].shape.size)}
        return {_CLASSES.get(op.opcode, "simple"): float(size)} if size else {}
    return {"simple": float(flops)} if flops else {}


def _rows(op: Instruction) -> list[tuple[int, int]]:
    """How many runs of consecutive bytes a gather or scatter touches, and their length."""
    if op.opcode == "gather":
        width = _run(op.attrs.get("slice_sizes") or (), op.operands[0].shape.dims)
        values = op.shape
    elif op.opcode == "scatter" and len(op.operands) == 3:
        values = op.operands[2].shape
        window = op.attrs.get("update_window_dims") or ()
        width = math.prod(values.dims[d] for d in window)
    else:
        return []
    width = max(1, min(width, values.size))
    return [(values.size // width, width * values.dtype.nbytes)] if values.size else []


def _run(sizes: tuple[int, ...], dims: tuple[int, ...]) -> int:
    """Elements that lie together in a block of ``sizes`` out of ``dims``, row-major."""
    run = 1
    for size, n in zip(reversed(sizes), reversed(dims), strict=True):
        run *= size
        if size != n:
            break
    return run


# -- products ------------------------------------------------------------------------------------------------------


def products_of(op: Instruction) -> tuple[Product, ...]:
    """The matrix products that an instruction is, convolutions as products of what their windows see."""
    make = _PRODUCTS.get(op.opcode)
    return () if make is None else make(op)


def _dot(op: Instruction) -> tuple[Product, ...]:
    left, right = (o.shape.dims for o in op.operands[:2])
    contracted: tuple[int, ...] = op.attrs.get("lhs_contracting_dims") or ()
    batched: tuple[int, ...] = op.attrs.get("lhs_batch_dims") or ()
    k, batch = (math.prod(left[d] for d in dims) for dims in (contracted, batched))
    m, n = (math.prod(dims) // max(1, k * batch) for dims in (left, right))
    return (_product(op, batch, m, n, k),) if op.shape.size and k else ()


def _convolution(op: Instruction) -> tuple[Product, ...]:
    """Every position of the result is a row of what its window sees; groups of features are products of their own."""
    dims: ConvDims = op.attrs["dim_labels"]
    flops = instruction_flops(op)
    if not flops:
        return ()
    groups = (op.attrs.get("feature_group_count") or 1) * (op.attrs.get("batch_group_count") or 1)
    n = max(1, op.shape.dims[dims.out_feature] // groups)
    m = op.shape.size // max(1, op.shape.dims[dims.out_feature])
    return (_product(op, groups, m, n, max(1, flops // (2 * m * n * groups))),)


def _product(op: Instruction, batch: int, m: int, n: int, k: int) -> Product:
    sides = [o.shape.dtype for o in op.operands[:2]]
    widest = max(sides, key=lambda d: d.bits)
    terms, name = (4, "f64" if widest.name == "c128" else "f32") if widest.is_complex else (1, widest.name)
    precision: tuple[str, ...] = op.attrs.get("operand_precision") or ("default",)
    if name == "f32" and "highest" not in precision:
        name = "f32_high" if "high" in precision else "f32_default"
    sizes = (sides[0].nbytes, sides[1].nbytes, op.shape.dtype.nbytes)
    return Product(batch, m, n, k, name, sizes, terms)


_PRODUCTS: Mapping[str, Callable[[Instruction], tuple[Product, ...]]] = MappingProxyType(
    {"dot": _dot, "convolution": _convolution}
)
