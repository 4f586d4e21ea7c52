"""What a growing program may do next: one function per kind of step, listed in `STEPS`.

A step takes the growing computation and one of its values, adds instructions and keeps a new value, or gives up (and
returns without one) where the value does not suit it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from fuzz_algebra import cholesky, circular_convolution, top_k, transform, triangular_solve
from fuzz_grow import LIMIT, Grown
from fuzz_manual import manual
from fuzz_types import integer_arithmetic, integer_dot, narrow_sum, predicate_reduction
from fuzz_windows import convolution, cumulative, reduce_window, select_and_scatter

from shardc.hlo.ir.build import Builder, binary_computation
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.types import array_shape, tuple_shape

__all__ = ["NESTED", "STEPS", "Step", "grow"]

Step = Callable[[Grown, Instruction], object]

ADD = ("add", 0.0)
REDUCTIONS = (ADD, ADD, ("maximum", -np.inf), ("minimum", np.inf), ("maximum", 1.0), ("add", 2.0))


def unary(g: Grown, x: Instruction) -> None:
    g.keep(g.b.add(g.r.choice(["negate", "abs", "copy", "sign"]), x), g.bound(x))


def convert(g: Grown, x: Instruction) -> None:
    there = g.b.add("convert", x, shape=array_shape(g.r.choice(["s32", "bf16", "f16", "s8"]), *x.shape.dims))
    g.keep(g.b.add("convert", there, shape=x.shape), g.bound(x))


def binary(g: Grown, x: Instruction) -> None:
    y = g.like(x)
    opcode = g.r.choice(["add", "add", "subtract", "maximum", "minimum", "multiply"])
    a, b = g.bound(x), g.bound(y)
    operands = (x, y) if g.r.random() < 0.5 else (y, x)
    g.keep(g.b.add(opcode, *operands), a * b if opcode == "multiply" else a + b)


def scale(g: Grown, x: Instruction) -> None:
    factor = g.b.add("broadcast", g.b.constant(g.r.choice([2.0, -1.0, 0.0]), "f32"), shape=x.shape, dimensions=())
    g.keep(g.b.add("multiply", x, factor), 2 * g.bound(x))


def select(g: Grown, x: Instruction) -> None:
    y, z = g.like(x), g.like(x)
    p = g.b.add("compare", y, z, direction=g.r.choice(["LT", "GE", "EQ"]))
    g.keep(g.b.add("select", p, x, y), g.bound(x, y))


def transpose(g: Grown, x: Instruction) -> None:
    order = list(range(x.shape.rank))
    g.r.shuffle(order)
    g.keep(g.b.add("transpose", x, dimensions=tuple(order)), g.bound(x))


def broadcast(g: Grown, x: Instruction) -> None:
    new = g.r.choice(g.sizes)
    where = g.r.randint(0, x.shape.rank)
    dims = (*x.shape.dims[:where], new, *x.shape.dims[where:])
    if x.shape.rank < 3 and g.fits(dims):
        kept = tuple(d for d in range(len(dims)) if d != where)
        g.keep(g.b.add("broadcast", x, shape=array_shape("f32", *dims), dimensions=kept), g.bound(x))


def reshape(g: Grown, x: Instruction) -> None:
    total, dims = x.shape.size, []
    while total > 1 and len(dims) < 2:
        dims.append(g.r.choice([n for n in range(1, total + 1) if total % n == 0]))
        total //= dims[-1]
    g.keep(g.b.add("reshape", x, shape=array_shape("f32", *dims, total)), g.bound(x))


def merge(g: Grown, x: Instruction) -> None:
    """Two dimensions become one, or one two."""
    dims = x.shape.dims
    d = g.r.randrange(max(1, len(dims)))
    if len(dims) > d + 1 and g.r.random() < 0.5:
        new = (*dims[:d], dims[d] * dims[d + 1], *dims[d + 2 :])
    elif dims and len(dims) < 4:
        factor = g.r.choice([n for n in range(1, dims[d] + 1) if dims[d] % n == 0] or g.sizes)
        new = (*dims[:d], factor, dims[d] // max(factor, 1), *dims[d + 1 :])
    else:
        return
    g.keep(g.b.add("reshape", x, shape=array_shape("f32", *new)), g.bound(x))


def slice_(g: Grown, x: Instruction) -> None:
    bounds = []
    for n in x.shape.dims:
        low = g.r.randint(0, n - 1) if n else 0
        cut = (low, low + g.part_of(n - low), g.r.choice([1, 1, 2, 3]))
        bounds.append((0, n, 1) if g.r.random() < 0.4 else cut)
    g.keep(g.b.add("slice", x, slice=tuple(bounds)), g.bound(x))


def pad(g: Grown, x: Instruction) -> None:
    padding = []
    for n in x.shape.dims:
        low, high, between = g.r.randint(-1, 3), g.r.randint(-1, 3), g.r.choice([0, 0, 0, 1, 2])
        size = n + low + high + between * max(n - 1, 0)
        padding.append((low, high, between) if g.r.random() < 0.6 and min(*g.sizes, 1) <= size < 13 else (0, 0, 0))
    g.keep(g.b.add("pad", x, g.b.constant(g.r.choice([0.0, 2.0]), "f32"), padding=tuple(padding)), g.bound(x) + 2)


def concatenate(g: Grown, x: Instruction) -> None:
    if not x.shape.rank:
        return
    d = g.r.randrange(x.shape.rank)
    other = list(x.shape.dims)
    other[d] = g.r.choice(g.sizes)
    parts = [x, g.like(x) if g.r.random() < 0.4 else g.fresh(other)]
    g.r.shuffle(parts)
    g.keep(g.b.add("concatenate", *parts, dimensions=(d,)), g.bound(*parts))


def roll(g: Grown, x: Instruction) -> None:
    dims = x.shape.dims
    d = g.r.randrange(max(1, len(dims)))
    if not dims or dims[d] < 2:
        return
    k = g.r.randint(1, dims[d] - 1)
    parts = [
        g.b.add("slice", x, slice=tuple((a, b, 1) if e == d else (0, n, 1) for e, n in enumerate(dims)))
        for a, b in ((k, dims[d]), (0, k))
    ]
    g.keep(g.b.add("concatenate", *parts, dimensions=(d,)), g.bound(x))


def reverse(g: Grown, x: Instruction) -> None:
    some = tuple(d for d in range(x.shape.rank) if g.r.random() < 0.6)
    g.keep(g.b.add("reverse", x, dimensions=some), g.bound(x))


def reduce(g: Grown, x: Instruction) -> None:
    over = tuple(sorted(g.r.sample(range(x.shape.rank), g.r.randint(0, x.shape.rank))))
    op, init = g.r.choice(REDUCTIONS)
    body = binary_computation(op, "f32")
    out = g.b.add("reduce", x, g.b.constant(init, "f32"), dimensions=over, to_apply=body)
    count = int(np.prod([x.shape.dims[d] for d in over], dtype=int)) if op == "add" else 1
    g.keep(out, g.bound(x) * count + 2)


def normalise(g: Grown, x: Instruction) -> None:
    """A reduction that goes back to where it came from."""
    if not x.shape.rank:
        return
    d = g.r.randrange(x.shape.rank)
    op, init = g.r.choice(REDUCTIONS)
    s = g.b.add("reduce", x, g.b.constant(init, "f32"), dimensions=(d,), to_apply=binary_computation(op, "f32"))
    back = tuple(k for k in range(x.shape.rank) if k != d)
    whole = g.b.add("broadcast", s, shape=x.shape, dimensions=back)
    g.keep(g.b.add("subtract", x, whole), g.bound(x) * (1 + x.shape.dims[d]) + 2)


def argmax(g: Grown, x: Instruction) -> None:
    if not x.shape.rank:
        return
    d = g.r.randrange(x.shape.rank)
    c = Builder("argmax")
    v, i, w, j = (c.parameter(array_shape(t)) for t in ("f32", "s32", "f32", "s32"))
    same = c.add("and", c.add("compare", v, w, direction="EQ"), c.add("compare", i, j, direction="LT"))
    take = c.add("or", c.add("compare", v, w, direction="GT"), same)
    body = c.build(c.add("tuple", c.add("select", take, v, w), c.add("select", take, i, j)))
    index = g.b.add("iota", shape=array_shape("s32", *x.shape.dims), iota_dimension=d)
    low, big = g.b.constant(-np.inf, "f32"), g.b.constant(2**31 - 1, "s32")
    both = g.b.add("reduce", x, index, low, big, dimensions=(d,), to_apply=body)
    g.keep(g.b.add("get-tuple-element", both, index=0), g.bound(x))
    where = g.b.add("get-tuple-element", both, index=1)
    g.keep(g.b.add("convert", where, shape=array_shape("f32", *where.shape.dims)), x.shape.dims[d])


def dot(g: Grown, x: Instruction) -> None:
    """Every dimension of ``x`` is a batch dimension, contracted or free; the other operand in any order."""
    roles = [g.r.choice(["free", "contract", "batch", "contract"]) for _ in x.shape.dims]
    mine = {role: [d for d, other in enumerate(roles) if other == role] for role in ("batch", "contract")}
    order = [("b", d) for d in mine["batch"]] + [("c", d) for d in mine["contract"]]
    order += [("f", n) for n in g.dims(g.r.randint(0, 1))]
    g.r.shuffle(order)
    y = g.fresh([n if kind == "f" else x.shape.dims[n] for kind, n in order])
    free = [n for d, n in enumerate(x.shape.dims) if roles[d] != "contract"]
    if not g.fits([*free, *(n for kind, n in order if kind == "f")]):
        return
    attrs = {
        "lhs_batch_dims": tuple(mine["batch"]),
        "rhs_batch_dims": tuple(order.index(("b", d)) for d in mine["batch"]),
        "lhs_contracting_dims": tuple(mine["contract"]),
        "rhs_contracting_dims": tuple(order.index(("c", d)) for d in mine["contract"]),
    }
    count = int(np.prod([x.shape.dims[d] for d in mine["contract"]], dtype=int))
    g.keep(g.b.add("dot", x, y, **attrs), g.bound(x) * g.bound(y) * count)


def gather(g: Grown, x: Instruction) -> None:
    """Some dimensions are indexed, one may be a batch dimension, slices of any size."""
    rank = x.shape.rank
    if not rank:
        return
    indexed = g.r.sample(range(rank), g.r.randint(1, rank))
    batching = [d for d in range(rank) if d not in indexed][:1] if g.r.random() < 0.3 else []
    sizes = [n if g.r.random() < 0.5 else g.part_of(n) for n in x.shape.dims]
    collapsed = [d for d in indexed if g.r.random() < 0.6]
    for d in (*collapsed, *batching):
        sizes[d] = min(1, x.shape.dims[d])
    lead = [x.shape.dims[d] for d in batching] + list(g.dims(g.r.randint(0, 1)))
    i = g.indices((*lead, len(indexed)), max(x.shape.dims))
    offsets = rank - len(collapsed) - len(batching)
    places = sorted(g.r.sample(range(offsets + len(lead)), offsets))
    attrs = {
        "offset_dims": tuple(places),
        "collapsed_slice_dims": tuple(sorted(collapsed)),
        "start_index_map": tuple(indexed),
        "index_vector_dim": len(lead),
        "slice_sizes": tuple(sizes),
        "operand_batching_dims": tuple(batching),
        "start_indices_batching_dims": tuple(range(len(batching))),
    }
    out = g.b.add("gather", x, i, **attrs)
    if g.fits(out.shape.dims):
        g.keep(out, g.bound(x))


def scatter(g: Grown, x: Instruction) -> None:
    rank = x.shape.rank
    if not rank:
        return
    indexed = g.r.sample(range(rank), g.r.randint(1, rank))
    batching = [d for d in range(rank) if d not in indexed][:1] if g.r.random() < 0.3 else []
    inserted = [d for d in indexed if g.r.random() < 0.6]
    lead = (*(x.shape.dims[d] for d in batching), *g.dims(g.r.randint(0, 1)))
    i = g.indices((*lead, len(indexed)), max(x.shape.dims))
    kept = [n for d, n in enumerate(x.shape.dims) if d not in inserted and d not in batching]
    window = [n if g.r.random() < 0.6 else g.part_of(n) for n in kept]
    u = g.fresh((*lead, *window))
    op = g.r.choice(["add", "add", "maximum", "minimum"])
    attrs = {
        "update_window_dims": tuple(range(len(lead), len(lead) + len(window))),
        "inserted_window_dims": tuple(sorted(inserted)),
        "scatter_dims_to_operand_dims": tuple(indexed),
        "index_vector_dim": len(lead),
        "input_batching_dims": tuple(batching),
        "scatter_indices_batching_dims": tuple(range(len(batching))),
    }
    count = int(np.prod(lead, dtype=int)) if op == "add" else 1
    g.keep(
        g.b.add("scatter", x, i, u, to_apply=binary_computation(op, "f32"), **attrs), g.bound(x) + g.bound(u) * count
    )


def dynamic_slice(g: Grown, x: Instruction) -> None:
    starts = [g.scalar_index(n) for n in x.shape.dims]
    sizes = tuple(n if g.r.random() < 0.4 else g.part_of(n) for n in x.shape.dims)
    g.keep(g.b.add("dynamic-slice", x, *starts, dynamic_slice_sizes=sizes), g.bound(x))


def dynamic_update_slice(g: Grown, x: Instruction) -> None:
    u = g.fresh([n if g.r.random() < 0.4 else g.part_of(n) for n in x.shape.dims])
    starts = [g.scalar_index(n) for n in x.shape.dims]
    g.keep(g.b.add("dynamic-update-slice", x, u, *starts), g.bound(x, u))


def _compare(count: int, direction: str) -> Computation:
    c = Builder("in_order")
    pairs = [c.parameter(array_shape("f32")) for _ in range(2 * count)]
    return c.build(c.add("compare", pairs[0], pairs[1], direction=direction))


def sort(g: Grown, x: Instruction) -> None:
    if not x.shape.rank:
        return
    operands = [x, g.like(x)][: g.r.randint(1, 2)]
    to_apply = _compare(len(operands), g.r.choice(["LT", "GT"]))
    out = g.b.add("sort", *operands, dimensions=(g.r.randrange(x.shape.rank),), to_apply=to_apply, is_stable=True)
    last = out if len(operands) == 1 else g.b.add("get-tuple-element", out, index=1)
    g.keep(last, g.bound(operands[-1]))


def random_bits(g: Grown, x: Instruction) -> None:
    algorithm, words = g.r.choice([("rng_three_fry", 2), ("rng_philox", 3)])
    state = g.b.constant(np.arange(g.r.randrange(99), 99 + words, dtype=np.uint64)[:words])
    shape = tuple_shape(state.shape, array_shape("u32", *x.shape.dims))
    bits = g.b.add("rng-bit-generator", state, shape=shape, algorithm=algorithm)
    few = g.b.add("and", g.b.add("get-tuple-element", bits, index=1), g.b.constant(7, "u32", x.shape.dims))
    g.keep(g.b.add("add", x, g.b.add("convert", few, shape=x.shape)), g.bound(x) + 7)


def constraint(g: Grown, x: Instruction) -> None:
    g.keep(g.b.add("custom-call", x, shape=x.shape, custom_call_target="Sharding"), g.bound(x))


def barrier(g: Grown, x: Instruction) -> None:
    both = g.b.add("optimization-barrier", g.b.add("tuple", x, g.like(x)))
    g.keep(g.b.add("get-tuple-element", both, index=0), LIMIT)


def _grown(inner: Grown, x: Instruction, steps: int) -> Instruction:
    """A few steps from ``x``, brought back to its shape by a sum."""
    inner.keep(x, LIMIT)
    grow(inner, steps)
    y = back = inner.values[-1]
    if back.shape.dims != x.shape.dims:
        over = tuple(range(back.shape.rank))
        whole = inner.b.add(
            "reduce", back, inner.b.constant(0.0, "f32"), dimensions=over, to_apply=binary_computation("add", "f32")
        )
        y = inner.b.add("add", x, inner.b.add("broadcast", whole, shape=x.shape, dimensions=()))
    low, high = inner.b.constant(-4.0, "f32"), inner.b.constant(4.0, "f32")
    return inner.b.add("clamp", low, y, high)


def loop(g: Grown, x: Instruction) -> None:
    """Carries ``x``, and another value that sums are added to (as gradients are)."""
    other = g.fresh(g.dims(g.r.randint(0, 2)))
    init = g.b.add("tuple", g.b.constant(0, "s32"), x, other)
    c = Builder("condition")
    p = c.parameter(init.shape)
    limit = c.constant(g.r.randint(0, 3), "s32")
    test = c.build(c.add("compare", c.add("get-tuple-element", p, index=0), limit, direction="LT"))
    inner = Grown(g.r, "body", inner=True, depth=g.depth + 1, sizes=g.sizes)
    p = inner.b.parameter(init.shape)
    i, y, z = (inner.b.add("get-tuple-element", p, index=k) for k in range(3))
    new = _grown(inner, y, g.r.randint(1, 4))
    s = inner.b.add(
        "reduce", new, inner.b.constant(0.0, "f32"), dimensions=tuple(range(new.shape.rank)),
        to_apply=binary_computation("add", "f32"),
    )  # fmt: skip
    z = inner.b.add("add", z, inner.b.add("broadcast", s, shape=z.shape, dimensions=()))
    step = inner.b.add("add", i, inner.b.constant(1, "s32"))
    body = inner.build(inner.b.add("tuple", step, new, z))
    out = g.b.add("while", init, condition=test, body=body)
    g.keep(g.b.add("get-tuple-element", out, index=1), LIMIT)
    g.keep(g.b.add("get-tuple-element", out, index=2), LIMIT + 1)


def branch(g: Grown, x: Instruction) -> None:
    branches = []
    for k in range(g.r.randint(2, 3)):
        inner = Grown(g.r, f"branch{k}", inner=True, depth=g.depth + 1, sizes=g.sizes)
        branches.append(inner.build(_grown(inner, inner.b.parameter(x.shape), g.r.randint(0, 3))))
    total = g.b.add(
        "reduce", x, g.b.constant(0.0, "f32"), dimensions=tuple(range(x.shape.rank)),
        to_apply=binary_computation("add", "f32"),
    )  # fmt: skip
    which = g.b.add("convert", total, shape=array_shape("s32")) if g.r.random() < 0.5 else g.scalar_index(3)
    operands = [x if g.r.random() < 0.7 else g.like(x) for _ in branches]
    g.keep(g.b.add("conditional", which, *operands, branch_computations=tuple(branches)), 4)


def call(g: Grown, x: Instruction) -> None:
    inner = Grown(g.r, "callee", inner=True, depth=g.depth + 1, sizes=g.sizes)
    callee = inner.build(_grown(inner, inner.b.parameter(x.shape), g.r.randint(1, 4)))
    out = g.b.add("call", x, to_apply=callee)
    if g.r.random() < 0.5:
        out = g.b.add("add", out, g.b.add("call", g.like(x), to_apply=callee))
    g.keep(out, 8)


def manual_part(g: Grown, x: Instruction) -> None:
    manual(g, x, _grown)


STEPS: tuple[Step, ...] = (
    unary,
    convert,
    *(binary,) * 3,
    scale,
    select,
    transpose,
    broadcast,
    reshape,
    merge,
    slice_,
    pad,
    concatenate,
    roll,
    reverse,
    *(reduce,) * 2,
    normalise,
    argmax,
    *(dot,) * 3,
    *(convolution,) * 2,
    reduce_window,
    cumulative,
    select_and_scatter,
    gather,
    scatter,
    dynamic_slice,
    dynamic_update_slice,
    sort,
    random_bits,
    constraint,
    barrier,
    transform,
    circular_convolution,
    cholesky,
    triangular_solve,
    top_k,
    integer_arithmetic,
    integer_dot,
    narrow_sum,
    predicate_reduction,
    *(manual_part,) * 2,
)
NESTED: tuple[Step, ...] = (loop, branch, call)


def grow(g: Grown, steps: int) -> None:
    """``steps`` steps, each from one of the later values."""
    for _ in range(steps):
        nested = g.depth < 2 and g.r.random() < 0.08
        g.r.choice(NESTED if nested else STEPS)(g, g.pick())
