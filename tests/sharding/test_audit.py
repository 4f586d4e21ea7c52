"""The audit: for every op, running shards by the rule must equal running the whole.

Each pass-through factor is split 2-, 3- or 4-ways where it divides: the shards' results must be the shards of the
result. Each reduction factor is split the same way: the shards' results, combined, must be the result. (Dimensions that
the indices of a gather or scatter run over need shifted indices, which is the partitioner's rule to make.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shardc.hlo.build import binary_computation, make_module
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir import Computation, Instruction
from shardc.hlo.opset import ConvDims, Window, WindowDim
from shardc.hlo.types import array_shape, tuple_shape
from shardc.sharding.factors import FactorKind, FactorRule, TensorFactors
from shardc.sharding.rules import factor_rule

Array = NDArray[Any]
ADD, MAX = binary_computation("add", "f32"), binary_computation("maximum", "f32")
COMBINE: dict[str, Callable[[Array], Array]] = {"sum": lambda a: a.sum(0), "max": lambda a: a.max(0)}


def f32(*dims: int) -> Array:
    return np.random.default_rng(sum(dims) + 7 * len(dims)).standard_normal(dims).astype(np.float32)


def s32(*dims: int, high: int) -> Array:
    return np.random.default_rng(high).integers(0, high, dims).astype(np.int32)


def positive(*dims: int) -> Array:
    x = f32(*dims)
    return np.asarray(x @ x.swapaxes(-1, -2) + 4 * np.eye(dims[-1], dtype=np.float32))


def less() -> Computation:
    a, b = (Instruction("parameter", array_shape("f32"), (), {"index": n}) for n in range(2))
    root = Instruction("compare", array_shape("pred"), (a, b), {"direction": "LT"})
    return Computation("less", (a, b, root), root)


CONV = ConvDims(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
WINDOW = Window((WindowDim(3, 1, 1, 1), WindowDim(3, 1, 1, 1)))
ROWS = {"offset_dims": (2,), "collapsed_slice_dims": (0,), "start_index_map": (0,), "index_vector_dim": 2}
INTO = {
    "update_window_dims": (2,),
    "inserted_window_dims": (0,),
    "scatter_dims_to_operand_dims": (0,),
    "index_vector_dim": 2,
}

#: name: (opcode, operands, result dims, attributes)
CASES: dict[str, tuple[str, list[Array], tuple[int, ...], dict[str, Any]]] = {
    "add": ("add", [f32(4, 6), f32(4, 6)], (4, 6), {}),
    "clamp": ("clamp", [f32(), f32(4, 6), f32()], (4, 6), {}),
    "tanh": ("tanh", [f32(6, 4)], (6, 4), {}),
    "select": ("select", [f32(4, 6) > 0, f32(4, 6), f32(4, 6)], (4, 6), {}),
    "dot": (
        "dot", [f32(4, 6, 8), f32(4, 8, 3)], (4, 6, 3),
        {"lhs_batch_dims": (0,), "rhs_batch_dims": (0,), "lhs_contracting_dims": (2,), "rhs_contracting_dims": (1,)},
    ),
    "dot of two": (
        "dot", [f32(6, 4, 2), f32(2, 8, 4)], (6, 8), {"lhs_contracting_dims": (1, 2), "rhs_contracting_dims": (2, 0)}
    ),
    "reduce sum": ("reduce", [f32(4, 6, 8), np.float32(0)], (4, 8), {"dimensions": (1,), "to_apply": ADD}),
    "reduce max": ("reduce", [f32(4, 6), np.float32(-np.inf)], (6,), {"dimensions": (0,), "to_apply": MAX}),
    "broadcast": ("broadcast", [f32(4, 6)], (6, 2, 4), {"dimensions": (2, 0)}),
    "transpose": ("transpose", [f32(4, 6, 2)], (2, 4, 6), {"dimensions": (2, 0, 1)}),
    "merge": ("reshape", [f32(4, 6, 2)], (24, 2), {}),
    "split": ("reshape", [f32(24, 2)], (4, 3, 1, 4), {}),
    "regroup": ("reshape", [f32(8, 6)], (4, 12), {}),
    "concatenate": ("concatenate", [f32(4, 6), f32(4, 2)], (4, 8), {"dimensions": (1,)}),
    "slice": ("slice", [f32(4, 6)], (4, 3), {"slice": ((0, 4, 1), (0, 6, 2))}),
    "pad": ("pad", [f32(4, 6), f32()], (4, 9), {"padding": ((0, 0, 0), (1, 2, 0))}),
    "reverse": ("reverse", [f32(4, 6)], (4, 6), {"dimensions": (1,)}),
    "sort": ("sort", [f32(4, 6)], (4, 6), {"dimensions": (1,), "to_apply": less()}),
    "gather": ("gather", [f32(9, 6), s32(4, 3, 1, high=9)], (4, 3, 6), {**ROWS, "slice_sizes": (1, 6)}),
    "scatter": ("scatter", [f32(9, 6), s32(4, 3, 1, high=9), f32(4, 3, 6)], (9, 6), {**INTO, "to_apply": ADD}),
    "dynamic-slice": (
        "dynamic-slice", [f32(4, 6), np.int32(0), np.int32(1)], (4, 3), {"dynamic_slice_sizes": (4, 3)}
    ),
    "dynamic-update-slice": ("dynamic-update-slice", [f32(4, 6), f32(4, 2), np.int32(0), np.int32(1)], (4, 6), {}),
    "convolution": (
        "convolution", [f32(4, 8, 8, 6), f32(3, 3, 6, 4)], (4, 8, 8, 4), {"window": WINDOW, "dim_labels": CONV}
    ),
    "reduce-window": (
        "reduce-window", [f32(4, 6), np.float32(0)], (4, 6),
        {"window": Window((WindowDim(1), WindowDim(3, 1, 2, 0))), "to_apply": ADD},
    ),
    "cholesky": ("cholesky", [positive(4, 3, 3)], (4, 3, 3), {"lower": True}),
    "triangular-solve": (
        "triangular-solve", [positive(4, 3, 3), f32(4, 3, 6)], (4, 3, 6),
        {"left_side": True, "lower": True, "unit_diagonal": False, "transpose_a": "NO_TRANSPOSE"},
    ),
    "batch-norm-inference": (
        "batch-norm-inference", [f32(4, 6), f32(6), f32(6), f32(6), np.abs(f32(6))], (4, 6),
        {"epsilon": 0.1, "feature_index": 1},
    ),
}  # fmt: skip


def make(opcode: str, operands: list[Array], dims: tuple[int, ...], attrs: dict[str, Any]) -> Instruction:
    parameters = [
        Instruction("parameter", array_shape(_dtype(a), *a.shape), (), {"index": n}, name=f"p{n}")
        for n, a in enumerate(operands)
    ]
    dtype = "f32" if opcode != "select" else _dtype(operands[1])
    return Instruction(opcode, array_shape(dtype, *dims), parameters, attrs)


def _dtype(a: Array) -> str:
    return {"float32": "f32", "int32": "s32", "bool": "pred"}[np.asarray(a).dtype.name]


def run(i: Instruction, operands: list[Array]) -> Array:
    root = Instruction("tuple", tuple_shape(i.shape), (i,))
    module = make_module("m", Computation("main", (*i.operands, i, root), root))
    return evaluate(module, [np.asarray(a) for a in operands])[0]


def shard(a: Array, tensor: TensorFactors, rule: FactorRule, factor: int, ways: int, index: int) -> Array | None:
    """Shard ``index`` of ``ways`` along a factor, wherever in the array it is; None if a dimension is not exact."""
    for d, indices in enumerate(tensor):
        if factor not in indices:
            continue
        sizes = [rule.factors[f].size for f in indices]
        if math.prod(sizes) != a.shape[d]:
            return None
        fine = a.reshape(*a.shape[:d], *sizes, *a.shape[d + 1 :])
        at = d + indices.index(factor)
        part = sizes[indices.index(factor)] // ways
        piece = np.take(fine, range(index * part, (index + 1) * part), at)
        a = piece.reshape(*a.shape[:d], a.shape[d] // ways, *a.shape[d + 1 :])
    return a


def local_attributes(opcode: str, attrs: dict[str, Any], operand: Array, result: tuple[int, ...]) -> dict[str, Any]:
    """Attributes that hold sizes, for a smaller operand."""
    out = dict(attrs)
    if opcode == "slice":
        pairs = zip(attrs["slice"], operand.shape, strict=True)
        out["slice"] = tuple((lo, min(hi, n), step) for (lo, hi, step), n in pairs)
    if opcode == "dynamic-slice":
        out["dynamic_slice_sizes"] = result
    if opcode == "gather":
        out["slice_sizes"] = (1, operand.shape[1])
    return out


@pytest.mark.parametrize("name", CASES)
def test_shards_by_the_rule_equal_the_whole(name: str) -> None:
    opcode, operands, dims, attrs = CASES[name]
    whole_op = make(opcode, operands, dims, attrs)
    rule = factor_rule(whole_op)
    whole = run(whole_op, operands)
    audited = 0
    for f, factor in enumerate(rule.factors):
        if factor.kind not in (FactorKind.PASS_THROUGH, FactorKind.REDUCTION) or f in _indexed(opcode, rule):
            continue
        for ways in (2, 3, 4):
            if factor.size % ways == 0 and factor.size > 1:
                audited += _audit(name, rule, f, ways, whole)
    assert audited


def _indexed(opcode: str, rule: FactorRule) -> tuple[int, ...]:
    """Factors of dimensions that indices run over: shards of those shift and mask the indices."""
    if opcode == "gather":
        return rule.of_kind(FactorKind.REDUCTION)
    if opcode == "scatter":
        updates = {f for d in rule.operands[2] for f in d}
        return tuple(f for d in rule.operands[0] for f in d if f not in updates)
    return ()


def _audit(name: str, rule: FactorRule, f: int, ways: int, whole: Array) -> int:
    opcode, operands, _, attrs = CASES[name]
    parts = []
    for index in range(ways):
        local = [shard(np.asarray(a), t, rule, f, ways, index) for a, t in zip(operands, rule.operands, strict=True)]
        expected = shard(whole, rule.results[0], rule, f, ways, index)
        if expected is None or any(a is None for a in local):
            return 0
        arrays = [a for a in local if a is not None]
        if opcode == "scatter" and rule.factors[f].kind is FactorKind.REDUCTION and index:
            arrays[0] = np.zeros_like(arrays[0])
        changed = local_attributes(opcode, attrs, arrays[0], expected.shape)
        parts.append(run(make(opcode, arrays, expected.shape, changed), arrays))
        if rule.factors[f].kind is FactorKind.PASS_THROUGH:
            np.testing.assert_allclose(parts[-1], expected, rtol=1e-5, atol=1e-5, err_msg=f"{rule}, factor {f}")
    if rule.factors[f].kind is FactorKind.REDUCTION:
        total = COMBINE[rule.reduction](np.stack(parts))
        np.testing.assert_allclose(total, whole, rtol=1e-4, atol=1e-4, err_msg=f"{rule}, factor {f}")
    return 1
