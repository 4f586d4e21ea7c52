"""Small random programs, one function per operation family; the result is the root. `PROGRAMS` lists them by name."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from shardc.hlo.ir.build import Builder, binary_computation
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.opset import ConvDims, Window, WindowDim
from shardc.hlo.ir.types import array_shape

Program = Callable[[random.Random, Builder], Instruction]

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 12)


def dims(r: random.Random, count: int) -> list[int]:
    return [r.choice(SIZES) for _ in range(count)]


def matmul(b: Builder, x: Instruction, y: Instruction) -> Instruction:
    return b.add("dot", x, y, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))


def zeros(b: Builder, *sizes: int, value: float = 0.0) -> Instruction:
    return b.add("broadcast", b.constant(value, "f32"), shape=array_shape("f32", *sizes), dimensions=())


def total(b: Builder, x: Instruction, dimensions: tuple[int, ...], op: str = "add", init: float = 0.0) -> Instruction:
    body = binary_computation(op, x.shape.dtype)
    return b.add("reduce", x, b.constant(init, x.shape.dtype), dimensions=dimensions, to_apply=body)


def less_than() -> Computation:
    b = Builder("less")
    return b.build(b.add("compare", b.parameter(array_shape("f32")), b.parameter(array_shape("f32")), direction="LT"))


def two_operands(r: random.Random, b: Builder) -> tuple[Instruction, Instruction]:
    m, k, n = dims(r, 3)
    return b.parameter(array_shape("f32", m, k)), b.parameter(array_shape("f32", k, n))


def dot_batched(r: random.Random, b: Builder) -> Instruction:
    batch, m, k, n = dims(r, 4)
    x, y = b.parameter(array_shape("f32", batch, m, k)), b.parameter(array_shape("f32", batch, k, n))
    attrs = {"lhs_batch_dims": (0,), "rhs_batch_dims": (0,)}
    return b.add("dot", x, y, lhs_contracting_dims=(2,), rhs_contracting_dims=(1,), **attrs)


def dot_two_contracted(r: random.Random, b: Builder) -> Instruction:
    m, k, j, n = dims(r, 4)
    x, y = b.parameter(array_shape("f32", k, m, j)), b.parameter(array_shape("f32", j, n, k))
    return b.add("dot", x, y, lhs_contracting_dims=(0, 2), rhs_contracting_dims=(2, 0))


def partial_chain(r: random.Random, b: Builder) -> Instruction:
    """Sums of products through linear operations, then a maximum."""
    m, k, n = dims(r, 3)
    x, y = b.parameter(array_shape("f32", m, k)), b.parameter(array_shape("f32", k, n))
    z, w = b.parameter(array_shape("f32", m, k)), b.parameter(array_shape("f32", k, n))
    s = b.add("subtract", matmul(b, x, y), b.add("negate", matmul(b, z, w)))
    t = b.add("multiply", b.add("transpose", s, dimensions=(1, 0)), zeros(b, n, m, value=2.0))
    return b.add("maximum", b.add("reshape", t, shape=array_shape("f32", n * m)), zeros(b, n * m))


def partial_shared(r: random.Random, b: Builder) -> Instruction:
    x, y = two_operands(r, b)
    d = matmul(b, x, y)
    return b.add("multiply", b.add("add", d, b.add("negate", d)), d)


def partial_into_dot(r: random.Random, b: Builder) -> Instruction:
    x, y = two_operands(r, b)
    z = b.parameter(array_shape("f32", y.shape.dims[1], r.choice(SIZES)))
    return matmul(b, matmul(b, x, y), z)


def partial_select(r: random.Random, b: Builder) -> Instruction:
    x, y = two_operands(r, b)
    d = matmul(b, x, y)
    p = b.parameter(array_shape("pred", *d.shape.dims))
    other = zeros(b, *d.shape.dims, value=r.choice([0.0, 1.0]))
    return total(b, b.add("select", p, d, other), (r.randint(0, 1),))


def partial_integer_division(r: random.Random, b: Builder) -> Instruction:
    m, k = dims(r, 2)
    x = b.parameter(array_shape("s32", m, k))
    s = total(b, x, (1,), init=0)
    return b.add("convert", b.add("divide", s, b.add("broadcast", b.constant(3, "s32"), shape=s.shape, dimensions=())),
                 shape=array_shape("f32", m))  # fmt: skip


def partial_max(r: random.Random, b: Builder) -> Instruction:
    x = b.parameter(array_shape("f32", *dims(r, 2)))
    top = total(b, x, (1,), "maximum", -np.inf)
    z = b.parameter(top.shape)
    return total(b, b.add("maximum", b.add("copy", top), z), (0,), "maximum", -np.inf)


def reduce_any(r: random.Random, b: Builder) -> Instruction:
    sizes, op = dims(r, 3), r.choice(["add", "maximum", "minimum", "multiply", "and", "or"])
    x = b.parameter(array_shape("s32" if op in ("and", "or") else "f32", *sizes))
    dimensions = tuple(sorted(r.sample(range(3), r.randint(1, 3))))
    return total(b, x, dimensions, op, r.choice([0, 1, 3]))


def reduce_arg(r: random.Random, b: Builder) -> Instruction:
    """The index of the largest element, as two results of one reduction."""
    m, n = dims(r, 2)
    x = b.parameter(array_shape("f32", m, n))
    c = Builder("argmax")
    v, i, w, j = (c.parameter(array_shape(t)) for t in ("f32", "s32", "f32", "s32"))
    same = c.add("compare", v, w, direction="EQ")
    first = c.add("compare", i, j, direction="LT")
    take = c.add("or", c.add("compare", v, w, direction="GT"), c.add("and", same, first))
    body = c.build(c.add("tuple", c.add("select", take, v, w), c.add("select", take, i, j)))
    index = b.add("iota", shape=array_shape("s32", m, n), iota_dimension=1)
    low, big = b.constant(-np.inf, "f32"), b.constant(2**31 - 1, "s32")
    return b.add("reduce", x, index, low, big, dimensions=(r.randint(0, 1),), to_apply=body)


def normalise(r: random.Random, b: Builder) -> Instruction:
    m, n = dims(r, 2)
    x = b.parameter(array_shape("f32", m, n))
    top = total(b, x, (1,), "maximum", -np.inf)
    s = b.add("subtract", x, b.add("broadcast", top, shape=x.shape, dimensions=(0,)))
    return b.add("multiply", s, b.add("broadcast", total(b, s, (1,)), shape=x.shape, dimensions=(0,)))


def reshape(r: random.Random, b: Builder) -> Instruction:
    base = [r.choice([1, 2, 3, 4, 6]) for _ in range(4)]

    def group() -> list[int]:
        out, i = [], 0
        while i < 4:
            j = r.randint(i + 1, 4)
            out.append(int(np.prod(base[i:j])))
            i = j
        return out

    x = b.parameter(array_shape("f32", *group()))
    return b.add("reshape", x, shape=array_shape("f32", *group()))


def broadcast(r: random.Random, b: Builder) -> Instruction:
    m, n, k = dims(r, 3)
    return b.add(
        "broadcast", b.parameter(array_shape("f32", m, n)), shape=array_shape("f32", n, k, m), dimensions=(2, 0)
    )


def slice_(r: random.Random, b: Builder) -> Instruction:
    x = b.parameter(array_shape("f32", *dims(r, 3)))
    bounds = []
    for n in x.shape.dims:
        low = r.randint(0, n - 1)
        bounds.append((0, n, 1) if r.random() < 0.5 else (low, r.randint(low + 1, n), r.randint(1, 2)))
    return b.add("slice", x, slice=tuple(bounds))


def pad(r: random.Random, b: Builder) -> Instruction:
    x = b.parameter(array_shape("f32", *dims(r, 2)))
    padding = tuple(
        (0, 0, 0) if r.random() < 0.5 else (r.randint(0, 2), r.randint(0, 2), r.randint(0, 1)) for _ in "ab"
    )
    return b.add("pad", x, b.constant(2.0, "f32"), padding=padding)


def concatenate(r: random.Random, b: Builder) -> Instruction:
    m, n, k = dims(r, 3)
    parts = [b.parameter(array_shape("f32", m, n)), b.parameter(array_shape("f32", m, k))]
    return b.add("concatenate", *parts, dimensions=(1,))


def reverse(r: random.Random, b: Builder) -> Instruction:
    return b.add("reverse", b.parameter(array_shape("f32", *dims(r, 2))), dimensions=(r.randint(0, 1),))


def made_values(r: random.Random, b: Builder) -> Instruction:
    m, n = dims(r, 2)
    x = b.parameter(array_shape("f32", m, n))
    index = b.add("iota", shape=array_shape("f32", m, n), iota_dimension=r.randint(0, 1))
    table = b.constant(np.arange(m * n, dtype=np.float32).reshape(m, n))
    return b.add("add", b.add("multiply", x, table), index)


def gather_rows(r: random.Random, b: Builder) -> Instruction:
    v, e, n, m = dims(r, 4)
    x, i = b.parameter(array_shape("f32", v, e)), b.parameter(array_shape("s32", n, m))
    attrs = {"offset_dims": (2,), "collapsed_slice_dims": (0,), "start_index_map": (0,), "index_vector_dim": 2}
    return b.add("gather", x, i, slice_sizes=(1, e), **attrs)


def gather_points(r: random.Random, b: Builder) -> Instruction:
    v, e, n, m = dims(r, 4)
    x, i = b.parameter(array_shape("f32", v, e, m)), b.parameter(array_shape(r.choice(["s64", "u8"]), n, 2))
    attrs = {"offset_dims": (1,), "collapsed_slice_dims": (0, 2), "start_index_map": (2, 0), "index_vector_dim": 1}
    return b.add("gather", x, i, slice_sizes=(1, e, 1), **attrs)


def gather_batched(r: random.Random, b: Builder) -> Instruction:
    g, v, n = dims(r, 3)
    x, i = b.parameter(array_shape("f32", g, v)), b.parameter(array_shape("s32", g, n, 1))
    attrs = {"offset_dims": (), "collapsed_slice_dims": (1,), "start_index_map": (1,), "index_vector_dim": 2}
    batching = {"operand_batching_dims": (0,), "start_indices_batching_dims": (0,)}
    return b.add("gather", x, i, slice_sizes=(1, 1), **attrs, **batching)


def scatter_rows(r: random.Random, b: Builder) -> Instruction:
    v, e, n, m = dims(r, 4)
    x = b.parameter(array_shape("f32", v, e)) if r.random() < 0.5 else zeros(b, v, e)
    i, u = b.parameter(array_shape("s32", n, m, 1)), b.parameter(array_shape("f32", n, m, e))
    attrs = {"update_window_dims": (2,), "inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,)}
    body = binary_computation(r.choice(["add", "maximum", "multiply"]), "f32")
    return b.add("scatter", x, i, u, index_vector_dim=2, to_apply=body, **attrs)


def scatter_overwrite(r: random.Random, b: Builder) -> Instruction:
    v, n = dims(r, 2)
    x, i, u = (
        b.parameter(array_shape("f32", v)),
        b.parameter(array_shape("s32", n, 1)),
        b.parameter(array_shape("f32", n)),
    )
    c = Builder("second")
    c.parameter(array_shape("f32"))
    body = c.build(c.parameter(array_shape("f32")))
    attrs = {"update_window_dims": (), "inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,)}
    return b.add("scatter", x, i, u, index_vector_dim=1, to_apply=body, **attrs)


def dynamic_slice(r: random.Random, b: Builder) -> Instruction:
    m, n = dims(r, 2)
    x, i, j = b.parameter(array_shape("f32", m, n)), b.parameter(array_shape("s32")), b.parameter(array_shape("s32"))
    return b.add("dynamic-slice", x, i, j, dynamic_slice_sizes=(r.randint(1, m), r.choice([n, r.randint(1, n)])))


def dynamic_update_slice(r: random.Random, b: Builder) -> Instruction:
    m, n = dims(r, 2)
    x = b.parameter(array_shape("f32", m, n))
    u = b.parameter(array_shape("f32", r.randint(1, m), r.choice([n, r.randint(1, n)])))
    return b.add("dynamic-update-slice", x, u, b.parameter(array_shape("s32")), b.parameter(array_shape("s32")))


def sort(r: random.Random, b: Builder) -> Instruction:
    x = b.parameter(array_shape("f32", *dims(r, 2)))
    return b.add("sort", x, dimensions=(r.randint(0, 1),), to_apply=less_than(), is_stable=True)


def sort_pairs(r: random.Random, b: Builder) -> Instruction:
    sizes = dims(r, 2)
    x, y = b.parameter(array_shape("f32", *sizes)), b.parameter(array_shape("s32", *sizes))
    c = Builder("less_key")
    v, w = c.parameter(array_shape("f32")), c.parameter(array_shape("f32"))
    c.parameter(array_shape("s32"))
    c.parameter(array_shape("s32"))
    less = c.build(c.add("compare", v, w, direction="LT"))
    return b.add("sort", x, y, dimensions=(r.randint(0, 1),), to_apply=less, is_stable=True)


def convolution(r: random.Random, b: Builder) -> Instruction:
    n, f, o = r.choice([1, 2, 3, 4]), r.choice([1, 2, 3, 4, 6]), r.choice([1, 2, 3, 4, 6])
    groups = r.choice([1, 1, 2]) if f % 2 == 0 and o % 2 == 0 else 1
    x, k = b.parameter(array_shape("f32", n, 6, f)), b.parameter(array_shape("f32", 3, f // groups, o))
    labels = ConvDims(0, 2, (1,), 1, 2, (0,), 0, 2, (1,))
    window = Window((WindowDim(3, stride=r.choice([1, 2]), pad_low=1, pad_high=1),))
    return b.add("convolution", x, k, window=window, dim_labels=labels, feature_group_count=groups)


def reduce_window(r: random.Random, b: Builder) -> Instruction:
    m, n = dims(r, 2)
    x = b.parameter(array_shape("f32", m, n + 1))
    window = Window((WindowDim(1), WindowDim(2, stride=r.choice([1, 2]), pad_low=1)))
    return b.add("reduce-window", x, b.constant(0.0, "f32"), window=window, to_apply=binary_computation("add", "f32"))


def random_bits(r: random.Random, b: Builder) -> Instruction:
    m, n = dims(r, 2)
    state = b.parameter(array_shape("u64", 2))
    shape = b.add("tuple", state, b.constant(0, "u32", (m, n))).shape
    b.instructions.pop()
    b.instructions.pop()
    return b.add("rng-bit-generator", state, shape=shape, algorithm="rng_three_fry")


def tuples(r: random.Random, b: Builder) -> Instruction:
    x, y = two_operands(r, b)
    d = matmul(b, x, y)
    t = b.add("tuple", d, b.add("negate", x))
    inner = b.add("tuple", b.add("get-tuple-element", t, index=1), b.add("get-tuple-element", t, index=0))
    return b.add("tuple", inner, b.add("multiply", d, d))


def while_loop(r: random.Random, b: Builder) -> Instruction:
    n = r.choice([2, 3, 4, 5])
    x, w = b.parameter(array_shape("f32", n, n)), b.parameter(array_shape("f32", n, n))
    init = b.add("tuple", b.constant(0, "s32"), x, w)
    c = Builder("condition")
    p = c.parameter(init.shape)
    test = c.build(c.add("compare", c.add("get-tuple-element", p, index=0), c.constant(3, "s32"), direction="LT"))
    l = Builder("body")
    p = l.parameter(init.shape)
    i, y, v = (l.add("get-tuple-element", p, index=k) for k in range(3))
    y = l.add("clamp", l.constant(-5.0, "f32"), matmul(l, y, v), l.constant(5.0, "f32"))
    body = l.build(l.add("tuple", l.add("add", i, l.constant(1, "s32")), y, v))
    return b.add("while", init, condition=test, body=body)


def call(r: random.Random, b: Builder) -> Instruction:
    x, y = two_operands(r, b)
    c = Builder("callee")
    callee = c.build(matmul(c, c.parameter(x.shape), c.parameter(y.shape)))
    return b.add("add", b.add("call", x, y, to_apply=callee), b.add("call", x, y, to_apply=callee))


def conditional(r: random.Random, b: Builder) -> Instruction:
    x, y = two_operands(r, b)
    which = b.parameter(array_shape("s32"))
    t = b.add("tuple", x, y)
    c = Builder("multiply_them")
    p = c.parameter(t.shape)
    first = c.build(matmul(c, c.add("get-tuple-element", p, index=0), c.add("get-tuple-element", p, index=1)))
    c = Builder("sevens")
    c.parameter(t.shape)
    second = c.build(zeros(c, *first.root.shape.dims, value=7.0))
    return b.add("conditional", which, t, t, branch_computations=(first, second))


def barrier(r: random.Random, b: Builder) -> Instruction:
    x, y = two_operands(r, b)
    t = b.add("optimization-barrier", b.add("tuple", matmul(b, x, y), x))
    return b.add("get-tuple-element", t, index=0)


def constraint(r: random.Random, b: Builder) -> Instruction:
    x, y = two_operands(r, b)
    d = matmul(b, x, y)
    return b.add("negate", b.add("custom-call", d, shape=d.shape, custom_call_target="Sharding"))


def elementwise(r: random.Random, b: Builder) -> Instruction:
    sizes = dims(r, 2)
    x, y, z = (b.parameter(array_shape("f32", *sizes)) for _ in range(3))
    p = b.add("compare", x, y, direction="LT")
    c = b.add("convert", b.add("select", p, x, z), shape=array_shape("s32", *sizes))
    return b.add("clamp", b.constant(-2, "s32"), b.add("abs", c), b.constant(3, "s32"))


PROGRAMS: dict[str, Program] = {
    f.__name__.strip("_"): f
    for f in (
        dot_batched,
        dot_two_contracted,
        partial_chain,
        partial_shared,
        partial_into_dot,
        partial_select,
        partial_integer_division,
        partial_max,
        reduce_any,
        reduce_arg,
        normalise,
        reshape,
        broadcast,
        slice_,
        pad,
        concatenate,
        reverse,
        made_values,
        gather_rows,
        gather_points,
        gather_batched,
        scatter_rows,
        scatter_overwrite,
        dynamic_slice,
        dynamic_update_slice,
        sort,
        sort_pairs,
        convolution,
        reduce_window,
        random_bits,
        tuples,
        while_loop,
        call,
        conditional,
        barrier,
        constraint,
        elementwise,
    )
}
