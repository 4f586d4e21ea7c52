"""What transforms, factorisations and normalisations cost; LAPACK's routines among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from shardc.costs.ops.op_cost import OpCost, per_flop
from shardc.hlo.ir.ir import Instruction

__all__ = ["COSTS", "lapack_flops", "panels"]

#: Columns of a matrix that a factorisation treats at a time; each time it waits for what it did before.
_PANEL = 64

#: Operations per element: statistics and their use, and for gradients two more sums.
_NORMALISED: Mapping[str, int] = {"batch-norm-training": 8, "batch-norm-inference": 4, "batch-norm-grad": 12}


def panels(op: Instruction) -> int:
    """Launches of a factorisation, one panel of columns after the other."""
    return -(-max(op.operands[0].shape.dims[-1:], default=1) // _PANEL)


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


def _normalised(op: Instruction) -> int:
    return op.operands[0].shape.size * _NORMALISED[op.opcode]


def _factor(m: int, n: int, k: int) -> float:
    """Elimination of k columns of an m by n matrix; Householder reflections take twice as much."""
    return 2 * m * n * k - (m + n) * k * k + 2 * k**3 / 3


#: Operations of a LAPACK routine for matrices of m by n; k is how many columns or reflections it goes through.
_ROUTINES: Mapping[str, Callable[[int, int, int], float]] = {
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
#: Routines by the operand that is the matrix, and by where k stands: (operand, dimension).
_MATRIX: Mapping[str, int] = {"ormqr": 2, "unmqr": 2, "trsm": 1, "gtsv": 3}
_STEPS: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(("ormqr", "unmqr", "orgqr", "ungqr"), (1, -1)),
    "trsm": (0, -1),
}


def lapack_flops(op: Instruction) -> int:
    """Operations of a custom call of one of LAPACK's routines."""
    target: str = op.attrs["custom_call_target"]
    name = target.removeprefix("lapack_").removesuffix("_ffi")[1:]
    dims = op.operands[_MATRIX.get(name, 0)].shape.dims
    m, n = dims[-2:]
    steps = _STEPS.get(name)
    k = min(m, n) if steps is None else op.operands[steps[0]].shape.dims[steps[1]]
    return round(math.prod(dims[:-2]) * _ROUTINES[name](m, n, k))


COSTS: Mapping[str, OpCost] = {
    **dict.fromkeys(_NORMALISED, OpCost(_normalised)),
    "cholesky": OpCost(_cholesky, launches=panels, host=per_flop),
    "fft": OpCost(_fft, host=per_flop),
    "triangular-solve": OpCost(_triangular_solve, launches=panels, host=per_flop),
}
