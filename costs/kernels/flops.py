"""Floating point (and integer) operations of one instruction on one device.

The figures are those that textbooks and XLA's cost analysis give: what an algorithm has to do, to leading order. Real
and complex elements count alike. Positions of a convolution that read padding or the holes of a dilation are free.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.lapack import LAPACK
from shardc.hlo.ir.opset import OPS, ConvDims, WindowDim

__all__ = ["MOVES", "instruction_flops"]

#: Elementwise operations that only move or retype.
MOVES = frozenset(("copy", "convert", "bitcast-convert", "real", "imag", "complex", "reduce-precision"))

#: Operations on u32 per random number of 32 bits: 20 rounds for two words, 10 rounds for four.
_RANDOM = MappingProxyType({"rng_three_fry": 55, "rng_philox": 25, "rng_default": 25})

#: Operations per element: statistics and their use, and for gradients two more sums.
_NORMALISED = MappingProxyType({"batch-norm-training": 8, "batch-norm-inference": 4, "batch-norm-grad": 12})


def instruction_flops(op: Instruction) -> int:
    """Arithmetic operations of one execution: 2 per multiply-add, 1 per element of an elementwise operation.

    Reductions and scatters count their combining operation once per element read; what moves data counts nothing.
    Called computations count where they are called, not here.
    """
    count = _COUNTS.get(op.opcode)
    if count is not None:
        return count(op)
    if OPS[op.opcode].family == "elementwise" and op.opcode not in MOVES:
        return op.shape.size
    return 0


def _body(op: Instruction, role: str = "to_apply") -> int:
    """Operations of a scalar computation."""
    body: Computation = op.attrs[role]
    return sum(1 for i in body if OPS[i.opcode].family == "elementwise" and i.opcode not in MOVES)


# -- products ------------------------------------------------------------------------------------------------------


def _dot(op: Instruction) -> int:
    contracted: tuple[int, ...] = op.attrs.get("lhs_contracting_dims") or ()
    return 2 * op.shape.size * math.prod(op.operands[0].shape.dims[d] for d in contracted)


def _convolution(op: Instruction) -> int:
    dims: ConvDims = op.attrs["dim_labels"]
    image, kernel = (o.shape.dims for o in op.operands)
    window = op.attrs.get("window")
    work = 2 * kernel[dims.rhs_input_feature]
    work *= op.shape.dims[dims.out_batch] * op.shape.dims[dims.out_feature]
    for n, (left, right, out) in enumerate(zip(dims.lhs_spatial, dims.rhs_spatial, dims.out_spatial, strict=True)):
        along = window.dims[n] if window is not None else WindowDim(kernel[right])
        work *= _meetings(along, image[left], kernel[right], op.shape.dims[out])
    return work


def _meetings(w: WindowDim, image: int, kernel: int, out: int) -> int:
    """How many pairs of an output position and a kernel position read an element of the image."""
    last = (image - 1) * w.lhs_dilate
    period = w.lhs_dilate // math.gcd(w.lhs_dilate, w.stride)
    count = 0
    for k in range(kernel):
        start = k * w.rhs_dilate - w.pad_low
        low = max(0, -(start // w.stride))
        high = min(out, (last - start) // w.stride + 1)
        hits = (o for o in range(low, min(high, low + period)) if (o * w.stride + start) % w.lhs_dilate == 0)
        count += sum(-(-(high - o) // period) for o in hits)
    return count


# -- reductions, windows, updates, orders --------------------------------------------------------------------------


def _reduce(op: Instruction) -> int:
    return op.operands[0].shape.size * _body(op)


def _reduce_window(op: Instruction) -> int:
    """Every window combines its elements; but running totals go on from one element to the next."""
    window = 1
    for w, n in zip(op.attrs["window"].dims, op.operands[0].shape.dims, strict=True):
        window *= 1 if _is_running(w, n) else w.size
    return next(op.shape.leaves()).size * window * _body(op)


def _is_running(w: WindowDim, n: int) -> bool:
    """Do windows hold everything up to (or from) their own element?"""
    pads = (w.pad_low, w.pad_high)
    return w.size >= n and pads in ((w.size - 1, 0), (0, w.size - 1)) and w == WindowDim(w.size, 1, *pads)


def _select_and_scatter(op: Instruction) -> int:
    """Every window looks for its element and combines one value into it."""
    window: int = math.prod(d.size for d in op.attrs["window"].dims)
    return op.operands[1].shape.size * (window * _body(op, "select") + _body(op, "scatter"))


def _scatter(op: Instruction) -> int:
    return op.operands[-1].shape.size * _body(op)


def _map(op: Instruction) -> int:
    return op.shape.size * _body(op)


def _sort(op: Instruction) -> int:
    """Comparisons of a merge sort."""
    shape = op.operands[0].shape
    return shape.size * _log2(shape.dims[op.attrs["dimensions"][0]])


def _topk(op: Instruction) -> int:
    """Comparisons when a heap of k elements is kept."""
    shape = op.operands[0].shape
    k = next(op.shape.leaves()).dims[-1]
    return shape.size * max(1, _log2(k))


def _log2(n: int) -> int:
    return (max(n, 1) - 1).bit_length()


# -- transforms and linear algebra ---------------------------------------------------------------------------------


def _fft(op: Instruction) -> int:
    """5 n log2 n for a complex transform, half of it for a real one."""
    lengths: tuple[int, ...] = op.attrs["fft_length"]
    real = op.attrs["fft_type"] in ("RFFT", "IRFFT")
    n = math.prod(lengths)
    batch = math.prod(op.shape.dims[: op.shape.rank - len(lengths)])
    return round(batch * 5 * n * math.log2(max(n, 1)) / (2 if real else 1))


def _cholesky(op: Instruction) -> int:
    return op.shape.size * op.shape.dims[-1] // 3


def _triangular_solve(op: Instruction) -> int:
    """Every element of the right-hand sides meets half a row of the matrix in multiply-adds."""
    return op.operands[1].shape.size * op.operands[0].shape.dims[-1]


def _random(op: Instruction) -> int:
    bits = op.shape.elements[1]
    words = bits.size * (2 if bits.dtype.bits == 64 else 1)
    return words * _RANDOM[op.attrs["algorithm"]]


def _drawn(op: Instruction) -> int:
    return op.shape.size * _RANDOM["rng_three_fry"]


def _normalised(op: Instruction) -> int:
    return op.operands[0].shape.size * _NORMALISED[op.opcode]


def _factor(m: int, n: int, k: int) -> float:
    """Elimination of k columns of an m by n matrix; Householder reflections take twice as much."""
    return 2 * m * n * k - (m + n) * k * k + 2 * k**3 / 3


#: Operations of a LAPACK routine for matrices of m by n; k is how many columns or reflections it goes through.
_ROUTINES: Mapping[str, Callable[[int, int, int], float]] = MappingProxyType(
    {
        "potrf": lambda m, n, k: n**3 / 3,
        "getrf": _factor,
        "geqrf": lambda m, n, k: 2 * _factor(m, n, k),
        "geqp3": lambda m, n, k: 2 * _factor(m, n, k),
        "orgqr": lambda m, n, k: 2 * _factor(m, n, k),
        "ungqr": lambda m, n, k: 2 * _factor(m, n, k),
        "ormqr": lambda m, n, k: 4 * m * n * k - 2 * n * k * k,
        "unmqr": lambda m, n, k: 4 * m * n * k - 2 * n * k * k,
        "trsm": lambda m, n, k: m * n * k,
        "gesdd": lambda m, n, k: 4 * max(m, n) ** 2 * k + 22 * k**3,
        "gesvd": lambda m, n, k: 4 * max(m, n) ** 2 * k + 22 * k**3,
        "syevd": lambda m, n, k: 9 * n**3,
        "heevd": lambda m, n, k: 9 * n**3,
        "geev": lambda m, n, k: 25 * n**3,
        "gees": lambda m, n, k: 25 * n**3,
        "gehrd": lambda m, n, k: 10 * n**3 / 3,
        "sytrd": lambda m, n, k: 4 * n**3 / 3,
        "hetrd": lambda m, n, k: 4 * n**3 / 3,
        "gtsv": lambda m, n, k: 8 * m * n,
    }
)


def _custom_call(op: Instruction) -> int:
    """LAPACK's routines and top-k; nothing is known of others."""
    target: str = op.attrs["custom_call_target"]
    if target in ("TopK", "mhlo.topk"):
        return _topk(op)
    if target not in LAPACK:
        return 0
    name = target.removeprefix("lapack_").removesuffix("_ffi")[1:]
    main = {"ormqr": 2, "unmqr": 2, "trsm": 1, "gtsv": 3}.get(name, 0)
    dims = op.operands[main].shape.dims
    m, n = dims[-2:]
    steps = {"ormqr": (1, -1), "unmqr": (1, -1), "orgqr": (1, -1), "ungqr": (1, -1), "trsm": (0, -1)}.get(name)
    k = min(m, n) if steps is None else op.operands[steps[0]].shape.dims[steps[1]]
    return round(math.prod(dims[:-2]) * _ROUTINES[name](m, n, k))


_COUNTS: Mapping[str, Callable[[Instruction], int]] = MappingProxyType(
    {
        "dot": _dot,
        "convolution": _convolution,
        "reduce": _reduce,
        "scan": _reduce,
        "reduce-window": _reduce_window,
        "select-and-scatter": _select_and_scatter,
        "scatter": _scatter,
        "map": _map,
        "sort": _sort,
        "topk": _topk,
        "fft": _fft,
        "cholesky": _cholesky,
        "triangular-solve": _triangular_solve,
        "rng": _drawn,
        "rng-bit-generator": _random,
        **dict.fromkeys(_NORMALISED, _normalised),
        "custom-call": _custom_call,
    }
)
