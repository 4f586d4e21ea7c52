"""What only moves data keeps every bit: zeros' signs and NaNs' payloads, signalling ones too, of every type.

Programs are chains of movement over arrays of random bits, under random layouts of every value; the whole array's
program in the evaluator is the truth for shards in the evaluator and for compiled devices.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from partition_support import random_sharding, scatter_poisoned, with_shardings

from shardc.compiler.compile import compile_module
from shardc.hlo.config import Config
from shardc.hlo.evaluate import evaluate, evaluate_spmd
from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.ir import Instruction, Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.types import DTYPES, DType, array_shape, tuple_shape
from shardc.hlo.text.printer import print_module
from shardc.launcher.driver.compiled import Compiled
from shardc.partitioner.equivalence import gather_results
from shardc.partitioner.partition import partition

Array = np.ndarray[Any, Any]
Make = Callable[[random.Random, Builder, Instruction], Instruction]

MESHES = (Mesh({"x": 2}), Mesh({"x": 3}), Mesh({"x": 2, "y": 2}), Mesh({"x": 2, "y": 3}))
TYPES = [d.name for d in DTYPES.values() if d.bits and d.kind not in ("token", "opaque")]
SIZES = (1, 2, 3, 4, 5, 6, 7, 8)


def random_bits(rng: np.random.Generator, dims: tuple[int, ...], dtype: DType) -> Array:
    """Codes of the type, a quarter of them special: zeros, -0.0, infinities, NaNs with payloads."""
    if dtype.kind == "pred":
        return rng.integers(0, 2, dims).astype(bool)
    if dtype.is_complex:
        half = DTYPES[f"f{dtype.bits // 2}"]
        return np.stack([random_bits(rng, dims, half) for _ in range(2)], -1).view(dtype.numpy)[..., 0]
    if dtype.is_integer and dtype.bits < 8:
        return rng.integers(0, 1 << (dtype.bits - (dtype.kind == "signed")), dims).astype(dtype.numpy)
    code = np.dtype(f"u{dtype.nbytes}")
    x = rng.integers(0, 1 << min(dtype.bits, 63), dims, dtype=np.uint64).astype(code)
    if dtype.is_float:
        sign = np.asarray(1 << (dtype.bits - 1), code)
        special = rng.integers(0, 8, dims)
        x = np.where(special == 0, np.asarray(0, code), np.where(special == 1, sign, x))
        if dtype.name in ("f16", "bf16", "f32", "f64"):
            infinite = np.asarray(np.inf, dtype.numpy).view(code)
            payload = rng.integers(0, 8, dims).astype(code)  # small ones: signalling, and infinity
            x = np.where(special == 2, infinite | payload | (x & sign), x)
    return np.asarray(x, code).view(dtype.numpy)


def same_bits(x: Array, y: Array) -> bool:
    return (
        x.dtype == y.dtype
        and x.shape == y.shape
        and np.ascontiguousarray(x).tobytes() == np.ascontiguousarray(y).tobytes()
    )


# -- the operations --------------------------------------------------------------------------------------------------


def index(b: Builder) -> Instruction:
    return b.parameter(array_shape("s32"), f"start{len(b.instructions)}")


def slice_(r: random.Random, b: Builder, x: Instruction) -> Instruction:
    bounds = []
    for n in x.shape.dims:
        low = r.randrange(n)
        bounds.append((low, r.randint(low + 1, n), r.choice((1, 1, 2))))
    return b.add("slice", x, slice=tuple(bounds))


def dynamic_slice(r: random.Random, b: Builder, x: Instruction) -> Instruction:
    sizes = tuple(r.choice((1, r.randint(1, n), n)) for n in x.shape.dims)
    return b.add("dynamic-slice", x, *(index(b) for _ in sizes), dynamic_slice_sizes=sizes)


def update(r: random.Random, b: Builder, x: Instruction) -> Instruction:
    sizes = tuple(r.choice((1, r.randint(1, n), n)) for n in x.shape.dims)
    part = b.parameter(array_shape(x.shape.dtype, *sizes), f"part{len(b.instructions)}")
    return b.add("dynamic-update-slice", x, part, *(index(b) for _ in sizes))


def gather(r: random.Random, b: Builder, x: Instruction) -> Instruction:
    d, count = r.randrange(x.shape.rank), r.choice(SIZES)
    where = b.parameter(array_shape("s32", count, 1), f"where{len(b.instructions)}")
    window = r.choice((1, 1, r.randint(1, x.shape.dims[d])))
    sizes = tuple(window if k == d else n for k, n in enumerate(x.shape.dims))
    collapsed = (d,) if window == 1 else ()
    offsets = tuple(range(1, 1 + x.shape.rank - len(collapsed)))
    attrs = {"offset_dims": offsets, "collapsed_slice_dims": collapsed, "start_index_map": (d,)}
    return b.add("gather", x, where, slice_sizes=sizes, index_vector_dim=1, **attrs)


def scatter(r: random.Random, b: Builder, x: Instruction) -> Instruction:
    count = r.randint(1, x.shape.dims[0])
    where = b.parameter(array_shape("s32", count, 1), f"rows{len(b.instructions)}")
    new = b.parameter(array_shape(x.shape.dtype, count, *x.shape.dims[1:]), f"new{len(b.instructions)}")
    inner = Builder("second")
    inner.parameter(array_shape(x.shape.dtype))
    second = inner.build(inner.parameter(array_shape(x.shape.dtype)))
    attrs = {"update_window_dims": tuple(range(1, x.shape.rank)), "inserted_window_dims": (0,)}
    return b.add(
        "scatter", x, where, new, scatter_dims_to_operand_dims=(0,), index_vector_dim=1, to_apply=second, **attrs
    )


def pad(r: random.Random, b: Builder, x: Instruction) -> Instruction:
    fill = b.parameter(array_shape(x.shape.dtype), f"fill{len(b.instructions)}")
    widths = tuple((r.randint(0, 2), r.randint(-1 if n > 1 else 0, 2), r.choice((0, 0, 1))) for n in x.shape.dims)
    return b.add("pad", x, fill, padding=widths)


def concatenate(r: random.Random, b: Builder, x: Instruction) -> Instruction:
    d = r.randrange(x.shape.rank)
    dims = (*x.shape.dims[:d], r.choice(SIZES), *x.shape.dims[d + 1 :])
    other = b.parameter(array_shape(x.shape.dtype, *dims), f"other{len(b.instructions)}")
    return b.add("concatenate", *r.sample([x, other], 2), dimensions=(d,))


def roll(r: random.Random, b: Builder, x: Instruction) -> Instruction:
    n = x.shape.dims[0]
    k = r.randrange(n)
    rest = tuple((0, m, 1) for m in x.shape.dims[1:])
    parts = [b.add("slice", x, slice=((low, high, 1), *rest)) for low, high in ((k, n), (0, k)) if high > low]
    return b.add("concatenate", *parts, dimensions=(0,))


def select(r: random.Random, b: Builder, x: Instruction) -> Instruction:
    chosen = b.parameter(array_shape("pred", *x.shape.dims), f"chosen{len(b.instructions)}")
    other = b.parameter(x.shape, f"other{len(b.instructions)}")
    return b.add("select", chosen, x, other)


def sort(r: random.Random, b: Builder, x: Instruction) -> Instruction:
    """Elements go with integers that are sorted."""
    d = r.randrange(x.shape.rank)
    keys = b.parameter(array_shape("s32", *x.shape.dims), f"keys{len(b.instructions)}")
    less = Builder("less")
    one, two = (less.parameter(array_shape("s32")) for _ in range(2))
    for _ in range(2):
        less.parameter(array_shape(x.shape.dtype))
    body = less.build(less.add("compare", one, two, direction="LT"))
    both = b.add("sort", keys, x, dimensions=(d,), is_stable=True, to_apply=body)
    return b.add("get-tuple-element", both, index=1)


def transpose(r: random.Random, b: Builder, x: Instruction) -> Instruction:
    return b.add("transpose", x, dimensions=tuple(r.sample(range(x.shape.rank), x.shape.rank)))


def reverse(r: random.Random, b: Builder, x: Instruction) -> Instruction:
    return b.add("reverse", x, dimensions=tuple(d for d in range(x.shape.rank) if r.random() < 0.7) or (0,))


def reshape(r: random.Random, b: Builder, x: Instruction) -> Instruction:
    n = x.shape.size
    first = r.choice([k for k in range(1, n + 1) if n % k == 0])
    return b.add("reshape", x, shape=array_shape(x.shape.dtype, first, n // first))


def broadcast(r: random.Random, b: Builder, x: Instruction) -> Instruction:
    shape = array_shape(x.shape.dtype, *x.shape.dims, r.choice((2, 3)))
    return b.add("broadcast", x, shape=shape, dimensions=tuple(range(x.shape.rank)))


def barrier(r: random.Random, b: Builder, x: Instruction) -> Instruction:
    return b.add("optimization-barrier", x)


def constraint(r: random.Random, b: Builder, x: Instruction) -> Instruction:
    return b.add("custom-call", x, shape=x.shape, custom_call_target="Sharding")


def loop(r: random.Random, b: Builder, x: Instruction) -> Instruction:
    """Rows that are written over the next ones."""
    inner, condition = Builder("body"), Builder("condition")
    given = inner.parameter(tuple_shape(array_shape("s32"), x.shape))
    count, value = (inner.add("get-tuple-element", given, index=k) for k in range(2))
    zeros = [inner.constant(0, "s32")] * (x.shape.rank - 1)
    row = inner.add("dynamic-slice", value, count, *zeros, dynamic_slice_sizes=(1, *x.shape.dims[1:]))
    after = inner.add("add", count, inner.constant(1, "s32"))
    body = inner.build(inner.add("tuple", after, inner.add("dynamic-update-slice", value, row, after, *zeros)))
    state = condition.parameter(tuple_shape(array_shape("s32"), x.shape))
    count = condition.add("get-tuple-element", state, index=0)
    limit = condition.build(condition.add("compare", count, condition.constant(r.randint(1, 3), "s32"), direction="LT"))
    start = b.add("tuple", b.constant(0, "s32"), x)
    return b.add("get-tuple-element", b.add("while", start, condition=limit, body=body), index=1)


def taken(r: random.Random, b: Builder, x: Instruction) -> Instruction:
    """Rows that a loop looks up and writes into what it began with, zeros."""
    table = b.parameter(array_shape(x.shape.dtype, 5, *x.shape.dims[1:]), f"table{len(b.instructions)}")
    state_shape = tuple_shape(array_shape("s32"), x.shape, table.shape)
    inner, condition = Builder("body"), Builder("condition")
    count, value, rows = (
        inner.add("get-tuple-element", p, index=k) for p in (inner.parameter(state_shape),) for k in range(3)
    )
    zeros = [inner.constant(0, "s32")] * (x.shape.rank - 1)
    row = inner.add("dynamic-slice", rows, count, *zeros, dynamic_slice_sizes=(1, *x.shape.dims[1:]))
    value = inner.add("dynamic-update-slice", value, row, count, *zeros)
    body = inner.build(inner.add("tuple", inner.add("add", count, inner.constant(1, "s32")), value, rows))
    first = condition.add("get-tuple-element", condition.parameter(state_shape), index=0)
    stop = condition.constant(min(5, x.shape.dims[0]), "s32")
    limit = condition.build(condition.add("compare", first, stop, direction="LT"))
    zero = b.add("broadcast", b.constant(0, x.shape.dtype), shape=x.shape, dimensions=())
    made = b.add("while", b.add("tuple", b.constant(0, "s32"), zero, table), condition=limit, body=body)
    return b.add("get-tuple-element", made, index=1)


def branch(r: random.Random, b: Builder, x: Instruction) -> Instruction:
    """One of two slices."""
    size = r.randint(1, x.shape.dims[0])
    parts = []
    for low in (0, x.shape.dims[0] - size):
        inner = Builder(f"branch{low}")
        rest = tuple((0, n, 1) for n in x.shape.dims[1:])
        parts.append(inner.build(inner.add("slice", inner.parameter(x.shape), slice=((low, low + size, 1), *rest))))
    return b.add("conditional", index(b), x, x, branch_computations=tuple(parts))


MOVES: tuple[Make, ...] = (
    *(slice_, dynamic_slice, update, gather, scatter, pad, concatenate, roll, select, sort, transpose, reverse),
    *(reshape, broadcast, barrier, constraint, loop, taken, branch),
)


# -- the programs ----------------------------------------------------------------------------------------------------


def program(r: random.Random, dtype: str, first: Make) -> Module:
    """``first`` and up to two more movements of a matrix, with layouts."""
    b = Builder("main")
    x = b.parameter(array_shape(dtype, r.choice(SIZES), r.choice(SIZES)), "x")
    for make in (first, *r.choices(MOVES, k=r.randint(0, 2))):
        x = make(r, b, x)
        if not 0 < x.shape.size <= 2000:
            break
    mesh = r.choice(MESHES)
    return with_shardings(b.build(b.add("copy", x)), mesh, lambda i: random_sharding(r, mesh, i.shape.rank))


def arguments(module: Module, seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    dtype = module.parameters[0].shape.dtype
    out = []
    for p in module.parameters:
        if p.shape.dtype is dtype and p.name[:5] not in ("start", "where", "rows", "keys"):
            out.append(random_bits(rng, p.shape.dims, dtype))
        elif p.name.startswith("rows"):  # no two updates of one row
            out.append(rng.permutation(p.shape.dims[0])[:, None].astype(np.int32))
        else:
            out.append(rng.integers(-1, 9, p.shape.dims).astype(p.shape.dtype.numpy))
    return out


def run(dtype: str, first: Make, seed: int, *, compiled: bool) -> None:
    label = f"{dtype} {first.__name__} {seed}"
    module = program(random.Random(label), dtype, first)
    args = arguments(module, seed)
    (want,) = evaluate(module, args)
    local = partition(module)
    (got,) = gather_results(local, evaluate_spmd(local, scatter_poisoned(local, args)))
    assert same_bits(got, want), f"{label}\n{print_module(module)}\n{print_module(local)}\n{got}\n{want}"
    if compiled:
        config = Config()
        result = Compiled(compile_module(local, config), config=config)(*args)
        assert same_bits(np.asarray(result), want), f"{label}, compiled\n{print_module(module)}\n{print_module(local)}"


@pytest.mark.parametrize("dtype", TYPES)
def test_movement_keeps_every_bit(dtype: str) -> None:
    chosen = MOVES if dtype in ("bf16", "f32", "c64") else random.Random(dtype).sample(MOVES, 4)
    for first in chosen:
        run(dtype, first, 0, compiled=False)


@pytest.mark.parametrize("dtype", TYPES)
def test_compiled_movement_keeps_every_bit(dtype: str) -> None:
    run(dtype, random.Random(dtype).choice(MOVES), 1, compiled=True)


@pytest.mark.full
@pytest.mark.parametrize("dtype", TYPES)
def test_much_movement_keeps_every_bit(dtype: str) -> None:
    for seed in range(2, 40):
        for first in MOVES:
            run(dtype, first, seed, compiled=seed % 8 == 0)
