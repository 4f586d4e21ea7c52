"""What the audit of factor rules runs over: random StableHLO operations, every elementwise op, and the rest by hand."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from audit import Array, Case, run
from rule_programs import one_module, operations

from shardc.hlo.errors import ShardcError
from shardc.hlo.ir.build import Builder, binary_computation, make_instruction
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.opset import OPS, ConvDims, Window, WindowDim
from shardc.hlo.ir.types import Shape, array_shape, tuple_shape
from shardc.hlo.stablehlo.reader import read_stablehlo

__all__ = ["by_hand", "elementwise", "programs"]

ADD, MULTIPLY = binary_computation("add", "f32"), binary_computation("multiply", "f32")


def values(shape: Shape, seed: str, role: str = "") -> Array:
    """Random values of a shape; ``role`` asks for special ones."""
    r = np.random.default_rng(zlib.crc32(f"{seed} {shape}".encode()))
    dtype = shape.dtype.numpy
    if role == "positive":
        x = r.standard_normal(shape.dims).astype(dtype)
        return np.asarray(x @ x.swapaxes(-1, -2) + 4 * np.eye(shape.dims[-1], dtype=dtype), dtype)
    if role == "indices":
        return r.integers(-1, 8, shape.dims).astype(dtype)
    if shape.dtype.kind == "pred":
        return np.asarray(r.integers(0, 2, shape.dims), bool)
    if shape.dtype.is_integer:
        low = 0 if shape.dtype.kind == "u" else -4
        return r.integers(low, 9, shape.dims).astype(dtype)
    x = r.standard_normal(shape.dims)
    return (x + 1j * r.standard_normal(shape.dims) if shape.dtype.is_complex else x).astype(dtype)


#: Roles of operands by kind of program: (operand, role); None is any operand of an integer type.
_ROLES = {
    "cholesky": {0: "positive"},
    "triangular_solve": {0: "positive"},
    "gather": {1: "indices"},
    "scatter": {1: "indices", 2: "indices"},
    "dynamic_slice": dict.fromkeys(range(1, 5), "indices"),
    "dynamic_update_slice": dict.fromkeys(range(2, 6), "indices"),
}


def programs(seed: int, each: int) -> Iterator[Case | str]:
    """The operations of random StableHLO programs; the name of a custom call that the evaluator does not know."""
    texts = list(operations(seed, each))
    module = read_stablehlo(one_module([text for _, text in texts]))
    functions = {c.name.partition(".")[0]: c for c in module.computations}
    for n, (kind, _) in enumerate(texts):
        entry = functions[f"f{n}"]
        roles = _ROLES.get(kind, {})
        known: dict[Instruction, Array] = {}
        for p in entry.parameters:
            role = roles.get(p.attrs["index"], "")
            fits = role != "indices" or p.shape.dtype.is_integer
            known[p] = values(p.shape, f"{kind} {n} {p.attrs['index']}", role if fits else "")
        yield from _walk(f"{kind} {n}", entry, known)


def _walk(name: str, c: Computation, known: dict[Instruction, Any]) -> Iterator[Case | str]:
    for i in c:
        if i in known:
            continue
        operands = [known[o] for o in i.operands]
        if i.opcode == "get-tuple-element":
            known[i] = operands[0][i.attrs["index"]]
        elif i.opcode == "tuple":
            known[i] = operands
        elif i.opcode == "call":
            inner: Computation = i.attrs["to_apply"]
            below = dict(zip(inner.parameters, operands, strict=True))
            yield from _walk(name, inner, below)
            known[i] = below[inner.root]
        elif i.opcode == "constant":
            known[i] = run(i, [])[0]
        else:
            try:
                case = Case.of(name, i, operands)
            except ShardcError as e:
                yield f"{i.attrs.get('custom_call_target', i.opcode)}: {e.what}"
                return
            known[i] = list(case.results) if i.shape.is_tuple else case.results[0]
            yield case


# --- elementwise --------------------------------------------------------------------------------------------

_TYPES = {
    **dict.fromkeys(("and", "or", "xor", "not", "popcnt", "count-leading-zeros"), ("s32", "s32")),
    **dict.fromkeys(("shift-left", "shift-right-arithmetic", "shift-right-logical"), ("s32", "s32")),
    "complex": ("f32", "c64"),
    "real": ("c64", "f32"),
    "imag": ("c64", "f32"),
    "is-finite": ("f32", "pred"),
    "compare": ("f32", "pred"),
    "convert": ("f32", "s32"),
    "stochastic-convert": ("f32", "s32"),
}
_ATTRS: dict[str, dict[str, Any]] = {
    "compare": {"direction": "LT"},
    "reduce-precision": {"exponent_bits": 5, "mantissa_bits": 3},
    "map": {"to_apply": MULTIPLY, "dimensions": (0, 1)},
}


def elementwise() -> Iterator[Case]:
    """Every elementwise op on 6x8 and 5x3 arrays (uneven for all mesh axes)."""
    for opcode, op in OPS.items():
        if op.family != "elementwise":
            continue
        for dims in ((6, 8), (5, 3)):
            source, target = _TYPES.get(opcode, ("f32", "f32"))
            kinds = [source] * (op.arity or 2)
            if opcode == "select":
                kinds = ["pred", "f32", "f32"]
            if opcode == "stochastic-convert":
                kinds = ["f32", "u32"]
            operands = [_parameter(n, array_shape(k, *dims)) for n, k in enumerate(kinds)]
            made = Instruction(opcode, array_shape(target, *dims), operands, _ATTRS.get(opcode, {}), name=opcode)
            yield Case.of(opcode, made, [values(o.shape, f"{opcode} {n}") for n, o in enumerate(operands)])


def _parameter(index: int, shape: Shape) -> Instruction:
    return Instruction("parameter", shape, (), {"index": index}, name=f"p{index}")


# --- the rest by hand ---------------------------------------------------------------------------------------


def _scan_body() -> Computation:
    b = Builder("body")
    x, carry = b.parameter(array_shape("f32", 6)), b.parameter(array_shape("f32", 6))
    total = b.add("add", x, carry)
    return b.build(b.add("tuple", b.add("multiply", total, x), total))


def _mixing_body() -> Computation:
    b = Builder("body")
    x, carry = b.parameter(array_shape("f32", 6)), b.parameter(array_shape("f32", 6))
    turned = b.add("reverse", carry, dimensions=(0,))
    total = b.add("add", x, turned)
    return b.build(b.add("tuple", total, total))


def _f32(*dims: int) -> Shape:
    return array_shape("f32", *dims)


_DOT = {"lhs_contracting_dims": (2,), "rhs_contracting_dims": (1,), "lhs_batch_dims": (0,), "rhs_batch_dims": (0,)}
_RAGGED = {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (1,), "lhs_ragged_dims": (0,), "rhs_group_dims": (0,)}
_CUMULATIVE = Window((WindowDim(1), WindowDim(6, 1, 5, 0)))
_CONV = ConvDims(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
_SAME = Window((WindowDim(3, 1, 1, 1), WindowDim(3, 1, 1, 1)))
_SHIFTED = Window((WindowDim(1, 1, 1, -1), WindowDim(1)))

#: name, opcode, operands, roles, result (None: inferred), attributes
_CASES: Sequence[tuple[str, str, Sequence[Shape], dict[int, str], Shape | None, dict[str, Any]]] = (
    ("bitcast widening", "bitcast", [array_shape("u8", 6, 16)], {}, _f32(6, 4), {}),
    ("bitcast narrowing", "bitcast", [_f32(6, 4)], {}, array_shape("u8", 96), {}),
    ("bitcast regrouping", "bitcast", [_f32(6, 4)], {}, array_shape("s32", 4, 6), {}),
    ("top-k", "topk", [_f32(6, 8)], {}, tuple_shape(_f32(6, 3), array_shape("s32", 6, 3)), {"k": 3}),
    ("top-k of all", "topk", [_f32(6, 8)], {}, tuple_shape(_f32(6, 8), array_shape("s32", 6, 8)), {"k": 8}),
    (
        "scan", "scan", [_f32(4, 6), _f32(6)], {}, tuple_shape(_f32(4, 6), _f32(6)),
        {"dimensions": (0,), "to_apply": _scan_body(), "num_carries": 1},
    ),
    (
        "scan of columns", "scan", [_f32(6, 4), _f32(6)], {}, tuple_shape(_f32(6, 4), _f32(6)),
        {"dimensions": (1,), "to_apply": _scan_body(), "num_carries": 1, "is_reverse": True},
    ),
    (
        "scan that mixes", "scan", [_f32(4, 6), _f32(6)], {}, tuple_shape(_f32(4, 6), _f32(6)),
        {"dimensions": (0,), "to_apply": _mixing_body(), "num_carries": 1},
    ),
    ("ragged rows", "ragged-dot", [_f32(12, 8), _f32(3, 8, 6), array_shape("s32", 3)], {2: "groups"}, None, _RAGGED),
    (
        "ragged contraction", "ragged-dot", [_f32(6, 12), _f32(12, 8), array_shape("s32", 3)], {2: "groups"}, None,
        {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (0,), "lhs_ragged_dims": (1,)},
    ),
    (
        "ragged rows by batch", "ragged-dot", [_f32(4, 12, 8), _f32(3, 4, 8, 6), array_shape("s32", 4, 3)],
        {2: "groups"}, None,
        {
            "lhs_contracting_dims": (2,), "rhs_contracting_dims": (2,), "lhs_batch_dims": (0,), "rhs_batch_dims": (1,),
            "lhs_ragged_dims": (1,), "rhs_group_dims": (0,),
        },
    ),
    ("scaled", "scaled-dot", [_f32(4, 6, 24), _f32(4, 24, 8), _f32(4, 6, 12), _f32(4, 6, 1)], {}, _f32(4, 6, 8), _DOT),
    ("scaled lhs", "scaled-dot", [_f32(4, 6, 24), _f32(4, 24, 8), _f32(4, 6, 12), _f32()], {}, _f32(4, 6, 8), _DOT),
    (
        "batch norm", "batch-norm-training", [_f32(4, 6, 8), _f32(6), _f32(6)], {},
        tuple_shape(_f32(4, 6, 8), _f32(6), _f32(6)), {"epsilon": 0.1, "feature_index": 1},
    ),
    (
        "batch norm gradient", "batch-norm-grad",
        [_f32(4, 6), _f32(6), _f32(6), _f32(6), _f32(4, 6)], {3: "absolute"},
        tuple_shape(_f32(4, 6), _f32(6), _f32(6)), {"epsilon": 0.1, "feature_index": 1},
    ),
    (
        "cumulative sum", "reduce-window", [_f32(4, 6), _f32()], {1: "zero"}, _f32(4, 6),
        {"window": _CUMULATIVE, "to_apply": ADD},
    ),
    (
        "shift by padding", "reduce-window", [_f32(6, 4), _f32()], {1: "zero"}, _f32(6, 4),
        {"window": _SHIFTED, "to_apply": ADD},
    ),
    (
        "convolution", "convolution", [_f32(6, 8, 8, 4), _f32(3, 3, 4, 12)], {}, _f32(6, 8, 8, 12),
        {"window": _SAME, "dim_labels": _CONV},
    ),
    (
        "depthwise", "convolution", [_f32(6, 8, 8, 12), _f32(3, 3, 1, 24)], {}, _f32(6, 8, 8, 24),
        {"window": _SAME, "dim_labels": _CONV, "feature_group_count": 12},
    ),
    (
        "batch groups", "convolution", [_f32(12, 8, 8, 4), _f32(3, 3, 4, 24)], {}, _f32(1, 8, 8, 24),
        {"window": _SAME, "dim_labels": _CONV, "batch_group_count": 12},
    ),
    (
        "scatter into places named by no index", "scatter",
        [_f32(6, 5, 4), array_shape("s32", 3, 1), _f32(3, 4)], {1: "indices"}, _f32(6, 5, 4),
        {
            "update_window_dims": (1,), "inserted_window_dims": (0, 1), "scatter_dims_to_operand_dims": (1,),
            "index_vector_dim": 1, "to_apply": ADD,
        },
    ),
    ("qr", "custom-call", [_f32(6, 5, 4)], {}, tuple_shape(_f32(6, 5, 4), _f32(6, 4)), {"target": "lapack_sgeqrf_ffi"}),
    (
        "lu", "custom-call", [_f32(4, 5, 5)], {},
        tuple_shape(_f32(4, 5, 5), array_shape("s32", 4, 5), array_shape("s32", 4)), {"target": "lapack_sgetrf_ffi"},
    ),
    (
        "cholesky call", "custom-call", [_f32(2, 3, 4, 4)], {0: "positive"},
        tuple_shape(_f32(2, 3, 4, 4), array_shape("s32", 2, 3)),
        {"target": "lapack_spotrf_ffi", "backend_config": "{uplo = 76 : ui8}"},
    ),
)  # fmt: skip


def by_hand() -> Iterator[Case | str]:
    """Cases that StableHLO programs do not have; the name of one that the evaluator does not know."""
    for name, opcode, shapes, roles, result, given in _CASES:
        attrs = {("custom_call_target" if k == "target" else k): v for k, v in given.items()}
        operands = [_parameter(n, s) for n, s in enumerate(shapes)]
        shape = make_instruction(opcode, *operands, **attrs).shape if result is None else result
        made = Instruction(opcode, shape, operands, attrs, name="op")
        arrays = [_role(values(s, f"{name} {n}", r if r in ("positive", "indices") else ""), r)
                  for n, (s, r) in enumerate((s, roles.get(n, "")) for n, s in enumerate(shapes))]  # fmt: skip
        try:
            yield Case.of(name, made, arrays)
        except ShardcError as e:
            yield f"{name}: {e.what}"


def _role(a: Array, role: str) -> Array:
    if role == "groups":
        return np.broadcast_to(np.asarray([5, 0, 6], a.dtype), a.shape).copy()
    if role == "absolute":
        return np.abs(a) + a.dtype.type(1)
    return np.zeros_like(a) if role == "zero" else a
