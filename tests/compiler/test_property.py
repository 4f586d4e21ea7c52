"""Any op on any shape, type and value: compiled code (nothing folded) computes what the evaluator says.

Integers, truth values and moved data agree exactly, floats within 4 units in the last place, NaN with NaN. Sums and
products draw small whole numbers, whose results are exact in every order. A failure prints the seed of its values.
`--run-full` tries many more examples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from shardc.compiler.emit.cpu_executable import build_executable
from shardc.compiler.load.step import run_single
from shardc.hlo.config import Config
from shardc.hlo.errors import UnsupportedError, VerificationError
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.build import Builder, binary_computation, make_instruction, make_module
from shardc.hlo.ir.infer import infer_shape
from shardc.hlo.ir.infer.window import count_windows
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.opset import OPS, ConvDims, Window, WindowDim
from shardc.hlo.ir.types import DTYPES, array_shape
from shardc.hlo.verify import verify
from shardc.native.llvm.target import host_target
from tests.compiler.property_support import TYPES, difference, limits, small, wild

DIMS = st.lists(st.sampled_from([1, 1, 2, 3, 5, 8, 17, 33]), max_size=3).map(tuple)
SEED = st.integers(0, 2**32 - 1)
FLOATS = tuple(t for t in TYPES if DTYPES[t].is_float)
INTEGERS = tuple(t for t in TYPES if DTYPES[t].is_integer)
#: Types whose small whole numbers add up exactly.
SUMMED = tuple(t for t in TYPES if DTYPES[t].bits > 8 or DTYPES[t].is_integer)


class Program:
    """Grows a program together with its arguments and the tolerance of each result."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.b = Builder("main")
        self.arguments: list[np.ndarray[Any, Any]] = []
        self.results: list[Instruction] = []
        self.ulps: list[float] = []

    def pick(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def argument(self, value: np.ndarray[Any, Any], dtype: str) -> Instruction:
        self.arguments.append(np.asarray(value))
        return self.b.parameter(array_shape(dtype, *np.shape(value)))

    def wild(self, dtype: str, *dims: int) -> Instruction:
        return self.argument(wild(array_shape(dtype, *dims), self.draw(SEED)), dtype)

    def small(self, dtype: str, *dims: int) -> Instruction:
        return self.argument(small(array_shape(dtype, *dims), self.draw(SEED)), dtype)

    def result(self, i: Instruction, ulp: float = 0) -> None:
        self.results.append(i)
        self.ulps.append(ulp)

    def op(self, opcode: str, *operands: Instruction, ulp: float = 0, **fields: Any) -> None:
        self.result(self.b.add(opcode, *operands, **fields), ulp)

    def check(self) -> None:
        module = make_module("property", self.b.build(self.b.add("tuple", *self.results)))
        verify(module)
        note("\n".join(repr(i) for i in module.entry))
        try:
            wanted = evaluate(module, self.arguments)
        except UnsupportedError:
            with pytest.raises(UnsupportedError):
                build_executable(module, Config(), host_target(), fold=False)
            return
        got = run_single(build_executable(module, Config(), host_target(), fold=False), self.arguments)
        leaves = [u for i, u in zip(self.results, self.ulps, strict=True) for _ in i.shape.leaves()]
        for k, (g, w, ulp) in enumerate(zip(got, wanted, leaves, strict=True)):
            found = difference(g, w, ulp)
            assert not found, f"result {k}: {found}"


def prop(examples: int) -> Callable[[Callable[[Program], None]], Any]:
    """A property of drawn programs: a seeded slice of ``examples``, and 60 times as many in the full run."""

    def decorate(grow: Callable[[Program], None]) -> Any:
        @pytest.mark.parametrize("count", [examples, pytest.param(60 * examples, marks=pytest.mark.full)])
        def test(count: int) -> None:
            @settings(max_examples=count, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
            @given(st.data())
            def agree(data: st.DataObject) -> None:
                p = Program(data.draw)
                grow(p)
                p.check()

            agree()

        return test

    return decorate


# Elementwise.

#: Results are one of few exact answers.
EXACT = frozenset({
    "abs", "add", "and", "ceil", "clamp", "compare", "complex", "convert", "copy", "count-leading-zeros", "divide",
    "floor", "imag", "is-finite", "maximum", "minimum", "multiply", "negate", "not", "or", "popcnt", "real",
    "reduce-precision", "remainder", "round-nearest-afz", "round-nearest-even", "select", "shift-left",
    "shift-right-arithmetic", "shift-right-logical", "sign", "sqrt", "subtract", "xor",
})  # fmt: skip
#: Complex results that are far from the exact ones in the evaluator too (large exponents; branch cuts).
UNCHECKED = {("power", "complex"), ("atan2", "complex")}
ELEMENTWISE = tuple(
    o
    for o, row in OPS.items()
    if row.family == "elementwise" and o not in ("map", "stochastic-convert", "bitcast-convert")
)


def moved(p: Program, dtype: str, dims: tuple[int, ...]) -> Instruction:
    """Wild values of the given shape that come straight from memory, or some way around."""
    rank = len(dims)
    match p.pick("plain", "plain", "transpose", "reverse", "slice", "broadcast") if rank else "plain":
        case "transpose":
            order = p.draw(st.permutations(range(rank)))
            return p.b.add("transpose", p.wild(dtype, *placed(dims, order)), dimensions=tuple(order))
        case "reverse":
            return p.b.add("reverse", p.wild(dtype, *dims), dimensions=(rank - 1,))
        case "slice":
            x = p.wild(dtype, *(2 * n + 1 for n in dims))
            return p.b.add("slice", x, slice=tuple((1, 2 * n + 1, 2) for n in dims))
        case "broadcast":
            x = p.wild(dtype, *dims[1:])
            return p.b.add("broadcast", x, shape=array_shape(dtype, *dims), dimensions=tuple(range(1, rank)))
    return p.wild(dtype, *dims)


def placed(sizes: Sequence[int], places: Sequence[int]) -> list[int]:
    """Each size at its place."""
    out = [0] * len(sizes)
    for n, at in zip(sizes, places, strict=True):
        out[at] = n
    return out


def attributes(p: Program, opcode: str, dtype: str) -> dict[str, Any]:
    if opcode == "compare":
        order = {"type": "TOTALORDER"} if DTYPES[dtype].is_float and p.pick(False, True) else {}
        complex_ = DTYPES[dtype].is_complex
        return {"direction": p.pick(*(("EQ", "NE") if complex_ else ("EQ", "NE", "GE", "GT", "LE", "LT"))), **order}
    if opcode == "reduce-precision":
        return {"exponent_bits": p.draw(st.integers(1, 11)), "mantissa_bits": p.draw(st.integers(0, 52))}
    return {}


@cache
def defined(dtype: str) -> tuple[str, ...]:
    """The opcodes that take this type."""
    x, p = (Instruction("parameter", array_shape(t), attrs={"index": 0}) for t in (dtype, "pred"))
    found = []
    for opcode in ELEMENTWISE:
        attrs = {"direction": "EQ"} if opcode == "compare" else {"exponent_bits": 1, "mantissa_bits": 1}
        operands = (p, x, x) if opcode == "select" else (x,) * (OPS[opcode].arity or 0)
        try:
            if opcode != "convert":
                infer_shape(opcode, operands, attrs)
        except VerificationError:
            continue
        if (opcode, DTYPES[dtype].kind) not in UNCHECKED:
            found.append(opcode)
    return tuple(found)


@prop(40)
def test_elementwise(p: Program) -> None:
    """Some opcodes at once on operands of one type and shape."""
    dtype, dims = p.pick(*TYPES), p.draw(DIMS)
    d = DTYPES[dtype]
    operands = [moved(p, dtype, dims) for _ in range(3)]
    predicate = moved(p, "pred", dims)
    for opcode in p.draw(st.lists(st.sampled_from(defined(dtype)), min_size=3, max_size=8, unique=True)):
        fields = attributes(p, opcode, dtype)
        used = [predicate, *operands[:2]] if opcode == "select" else operands[: OPS[opcode].arity]
        if opcode == "convert":
            fields["shape"] = array_shape(p.pick(*TYPES), *dims)
        exact = opcode in EXACT and not (d.is_complex and opcode in ("abs", "divide", "multiply", "sign", "sqrt"))
        p.op(opcode, *used, ulp=0 if exact else 4, **fields)
    p.op("copy", operands[0])


@prop(15)
def test_convert(p: Program) -> None:
    """Every type to every other."""
    source = p.pick(*TYPES)
    x = p.wild(source, 61)
    for target in p.draw(st.lists(st.sampled_from(TYPES), min_size=6, max_size=6, unique=True)):
        if not DTYPES[source].is_complex or DTYPES[target].is_complex:
            p.op("convert", x, shape=array_shape(target, 61))
    p.op("copy", x)


@prop(15)
def test_bitcast_convert(p: Program) -> None:
    """Bits as another type, of the same width, wider or narrower."""
    real = [d for d in map(DTYPES.__getitem__, TYPES) if d.kind not in ("complex", "pred") and d.bits != 6]
    source = p.pick(*real)
    target = p.pick(*(d for d in real if max(d.bits, source.bits) % min(d.bits, source.bits) == 0))
    wide, narrow = sorted((source, target), key=lambda d: -d.bits)
    parts = (wide.bits // narrow.bits,) if wide.bits != narrow.bits else ()
    dims = p.draw(DIMS)
    shape = array_shape(target, *dims, *(parts if target is narrow else ()))
    p.op("bitcast-convert", p.wild(source.name, *dims, *(parts if source is narrow else ())), shape=shape)


@prop(7)
def test_stochastic_convert(p: Program) -> None:
    """Floats to integers by random bits of the same width."""
    source = p.pick("f16", "bf16", "f32", "f64")
    bits, dims = f"u{DTYPES[source].bits}", p.draw(DIMS)
    target = p.pick(*(t for t in INTEGERS if DTYPES[t].bits >= 8))
    p.op("stochastic-convert", p.wild(source, *dims), p.wild(bits, *dims), shape=array_shape(target, *dims))


@prop(5)
def test_map(p: Program) -> None:
    """A computation over scalars, applied to every element."""
    dtype, dims = p.pick(*FLOATS), p.draw(DIMS)
    b = Builder("body")
    x, y = b.parameter(array_shape(dtype)), b.parameter(array_shape(dtype))
    less = b.add("compare", x, y, direction="LT")
    body = b.build(b.add("select", less, b.add("negate", x), b.add("maximum", y, b.constant(1.0, dtype))))
    p.op("map", p.wild(dtype, *dims), p.wild(dtype, *dims), dimensions=tuple(range(len(dims))), to_apply=body)


# Movement.


@prop(30)
def test_movement(p: Program) -> None:
    """Bits arrive where they should and as they were."""
    dtype, dims = p.pick(*TYPES), p.draw(DIMS.filter(bool))
    rank, x = len(dims), p.wild(dtype, *dims)
    p.op("transpose", x, dimensions=tuple(p.draw(st.permutations(range(rank)))))
    p.op("reverse", x, dimensions=tuple(sorted(p.draw(st.sets(st.integers(0, rank - 1), min_size=1)))))
    p.op("reshape", x, shape=array_shape(dtype, x.shape.size, 1))
    spans = [sorted(p.draw(st.tuples(st.integers(0, n), st.integers(0, n)))) for n in dims]
    p.op("slice", x, slice=tuple((a, b, p.draw(st.integers(1, 3))) for a, b in spans))
    p.op("concatenate", x, p.wild(dtype, *dims), x, dimensions=(p.draw(st.integers(0, rank - 1)),))
    edges = [p.draw(st.tuples(st.integers(-1, 3), st.integers(0, 3), st.integers(0, 2))) for _ in dims]
    p.op("pad", x, p.wild(dtype), padding=tuple(edges))
    starts = [p.argument(np.int64(p.draw(st.integers(-3, 40))), "s64") for _ in dims]
    sizes = tuple(p.draw(st.integers(1, n)) for n in dims)
    p.op("dynamic-slice", x, *starts, dynamic_slice_sizes=sizes)
    p.op("dynamic-update-slice", x, p.wild(dtype, *sizes), *starts)


# Reductions.


def reducers(dtype: str) -> tuple[str, ...]:
    d = DTYPES[dtype]
    if d.kind == "pred":
        return ("and", "or", "xor")
    if d.is_complex:
        return ("add",)
    order = ("maximum", "minimum")
    if d.is_integer:
        return ("add", "multiply", "and", "or", "xor", *order)
    return ("add", *order) if dtype in SUMMED else order


def reducible(p: Program, dtype: str, opcode: str, *dims: int) -> Instruction:
    """Any values where every order gives the same, small ones for sums of floats."""
    exact = DTYPES[dtype].is_integer or opcode not in ("add", "multiply")
    return p.wild(dtype, *dims) if exact else p.small(dtype, *dims)


@prop(30)
def test_reduce(p: Program) -> None:
    """Over some dimensions, by any of the usual operations."""
    dtype, dims = p.pick(*TYPES), p.draw(DIMS.filter(bool))
    opcode = p.pick(*reducers(dtype))
    chosen = tuple(sorted(p.draw(st.sets(st.integers(0, len(dims) - 1), min_size=1))))
    x, init = reducible(p, dtype, opcode, *dims), reducible(p, dtype, opcode)
    p.op("reduce", x, init, dimensions=chosen, to_apply=binary_computation(opcode, dtype))


def window_dim(p: Program, size: int, *, dilated: bool = True) -> WindowDim:
    low, high = p.draw(st.integers(-1, 2)), p.draw(st.integers(0, 2))
    base = p.draw(st.integers(1, 2)) if dilated else 1
    w = WindowDim(p.draw(st.integers(1, 3)), p.draw(st.integers(1, 3)), low, high, base, p.draw(st.integers(1, 2)))
    return w if count_windows(size, w) else WindowDim(1)


@prop(25)
def test_reduce_window(p: Program) -> None:
    """Windows with strides, holes, padding and cropping."""
    dtype, dims = p.pick(*TYPES), p.draw(DIMS.filter(bool))
    opcode = p.pick(*reducers(dtype))
    window = Window(tuple(window_dim(p, n) for n in dims))
    x, init = reducible(p, dtype, opcode, *dims), reducible(p, dtype, opcode)
    p.op("reduce-window", x, init, window=window, to_apply=binary_computation(opcode, dtype))


def order(dtype: str, direction: str, others: Sequence[str] = (), **attrs: Any) -> Computation:
    """Compares the first pair of arguments."""
    b = Builder("order")
    x, y = b.parameter(array_shape(dtype)), b.parameter(array_shape(dtype))
    for t in others:
        b.parameter(array_shape(t))
        b.parameter(array_shape(t))
    return b.build(b.add("compare", x, y, direction=direction, **attrs))


@prop(15)
def test_select_and_scatter(p: Program) -> None:
    """The chosen element of every window gets the source's element."""
    dtype, dims = (
        p.pick(*(t for t in SUMMED if reducers(t)[0] == "add" and not DTYPES[t].is_complex)),
        p.draw(DIMS.filter(bool)),
    )
    plain = [WindowDim(w.size, w.stride, max(w.pad_low, 0), w.pad_high) for w in (window_dim(p, n) for n in dims)]
    window = Window(tuple(w if count_windows(n, w) else WindowDim(1) for n, w in zip(dims, plain, strict=True)))
    source = tuple(count_windows(n, w) for n, w in zip(dims, window.dims, strict=True))
    p.op(
        "select-and-scatter", p.small(dtype, *dims), p.small(dtype, *source), p.small(dtype), window=window,
        select=order(dtype, "GE"), scatter=binary_computation("add", dtype),
    )  # fmt: skip


@prop(20)
def test_sort(p: Program) -> None:
    """Stable, by the first operand; floats in total order."""
    dtype, dims = p.pick(*(t for t in TYPES if not DTYPES[t].is_complex)), p.draw(DIMS.filter(bool))
    others = p.draw(st.lists(st.sampled_from(TYPES), max_size=2))
    attrs = {"type": "TOTALORDER"} if DTYPES[dtype].is_float else {}
    body = order(dtype, p.pick("LT", "GT"), others, **attrs)
    operands = [p.wild(t, *dims) for t in (dtype, *others)]
    p.op("sort", *operands, dimensions=(p.draw(st.integers(0, len(dims) - 1)),), is_stable=True, to_apply=body)


# Indexing.


def indices(p: Program, *dims: int) -> Instruction:
    """Positions inside and outside of dimensions of up to 9."""
    dtype = p.pick("s32", "s64", "u8", "u32")
    low = 0 if dtype.startswith("u") else -3
    rng = np.random.default_rng(p.draw(SEED))
    values = rng.integers(low, 12, dims, np.int64)
    extreme = rng.integers(0, 12, dims) == 0
    values = np.where(extreme, min(limits(DTYPES[dtype])[1], 2**62), values)
    return p.argument(values.astype(DTYPES[dtype].numpy), dtype)


@prop(25)
def test_gather_and_scatter(p: Program) -> None:
    """Windows of some dimensions at positions along others, the rest whole; indices may lie outside."""
    dtype = p.pick(*TYPES)
    operand = tuple(p.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    rank = len(operand)
    indexed = tuple(p.draw(st.permutations(range(rank)))[: p.draw(st.integers(1, rank))])
    collapsed = tuple(sorted(d for d in indexed if p.pick(False, True)))
    sizes = tuple(1 if d in collapsed else p.draw(st.integers(1, n)) for d, n in enumerate(operand))
    places = p.draw(st.lists(st.integers(1, 4), max_size=2))
    at = p.draw(st.integers(0, len(places)))
    offsets = tuple(n for d, n in enumerate(sizes) if d not in collapsed)
    offset_dims = tuple(sorted(p.draw(st.permutations(range(len(places) + len(offsets))))[: len(offsets)]))
    where = indices(p, *places[:at], len(indexed), *places[at:])
    p.op(
        "gather", p.wild(dtype, *operand), where, offset_dims=offset_dims, collapsed_slice_dims=collapsed,
        start_index_map=indexed, index_vector_dim=at, slice_sizes=sizes,
    )  # fmt: skip
    batch, inner = iter(places), iter(offsets)
    update = tuple(next(inner) if d in offset_dims else next(batch) for d in range(len(places) + len(offsets)))
    opcode = p.pick(*reducers(dtype))
    p.op(
        "scatter", reducible(p, dtype, opcode, *operand), where, reducible(p, dtype, opcode, *update),
        update_window_dims=offset_dims, inserted_window_dims=collapsed, scatter_dims_to_operand_dims=indexed,
        index_vector_dim=at, to_apply=binary_computation(opcode, dtype),
    )  # fmt: skip


# Products.


@prop(20)
def test_dot(p: Program) -> None:
    """Any order of batch, free and contracted dimensions, also into a wider type."""
    dtype = p.pick(*TYPES)
    wider = {t: "f32" for t in FLOATS if DTYPES[t].bits <= 8} | {"s8": "s32", "u4": "s32", "bf16": "f32"}
    target = p.pick(dtype, wider[dtype]) if dtype in SUMMED and dtype in wider else wider.get(dtype, dtype)
    size = st.sampled_from([1, 2, 3, 7])
    batch, free = p.draw(st.lists(size, max_size=1)), [p.draw(st.lists(size, max_size=2)) for _ in range(2)]
    depth = p.draw(st.lists(size, min_size=1, max_size=2))
    sides, places = [], []
    for own in free:
        sizes = [*batch, *own, *depth]
        shuffled = p.draw(st.permutations(range(len(sizes))))
        place = [shuffled.index(k) for k in range(len(sizes))]
        sides.append(p.small(dtype, *(sizes[k] for k in shuffled)))
        places.append((tuple(place[: len(batch)]), tuple(place[len(batch) + len(own) :])))
    fields = {
        "lhs_batch_dims": places[0][0], "rhs_batch_dims": places[1][0],
        "lhs_contracting_dims": places[0][1], "rhs_contracting_dims": places[1][1],
    }  # fmt: skip
    shape = make_instruction("dot", *sides, **fields).shape
    p.op("dot", *sides, shape=shape.with_dtype(target), **fields)


def convolved(p: Program) -> tuple[ConvDims, list[int], list[int], dict[str, Any]]:
    """Roles of dimensions, sizes of input and kernel, and the attributes."""
    space = p.draw(st.lists(st.integers(3, 7), max_size=2))
    window = []
    for n in space:
        w = window_dim(p, n)
        window.append(
            WindowDim(w.size, w.stride, w.pad_low, w.pad_high, w.lhs_dilate, w.rhs_dilate, p.pick(False, True))
        )
    features, batches = p.pick((1, 1), (1, 1), (2, 1), (3, 1), (1, 2))
    inputs, outputs = p.draw(st.integers(1, 3)), features * batches * p.draw(st.integers(1, 3))
    left = [batches * p.draw(st.integers(1, 2)), inputs * features, *space]
    right = [inputs, outputs, *(w.size for w in window)]
    roles = [p.draw(st.permutations(range(len(space) + 2))) for _ in range(3)]
    labels = ConvDims(*(part for r in roles for part in (r[0], r[1], tuple(r[2:]))))
    fields = {"window": Window(tuple(window)), "feature_group_count": features, "batch_group_count": batches}
    return labels, placed(left, roles[0]), placed(right, roles[1]), fields


@prop(20)
def test_convolution(p: Program) -> None:
    """Strides, padding, both dilations, reversal, groups, any order of dimensions."""
    dtype = p.pick(*(t for t in SUMMED if t != "pred"))
    labels, left, right, fields = convolved(p)
    p.op("convolution", p.small(dtype, *left), p.small(dtype, *right), dim_labels=labels, **fields)
