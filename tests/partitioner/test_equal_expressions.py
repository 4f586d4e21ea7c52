"""An expression that stands twice in a program has the same bits in both places, on a mesh and on one device.

Random programs make an expression twice, pick something from the one (by a sort, a masked maximum, a top-k, a
running sum) and look for it in the other. All instructions have random layouts, also equal ones in different ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from partition_support import random_sharding, scatter_poisoned, with_shardings

from shardc.compiler.compile import compile_module
from shardc.hlo.config import Config
from shardc.hlo.evaluate import evaluate, evaluate_spmd
from shardc.hlo.ir.build import Builder, binary_computation, make_module
from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.opset import Window, WindowDim
from shardc.hlo.ir.types import array_shape
from shardc.hlo.text.printer import print_module
from shardc.launcher.driver.compiled import Compiled
from shardc.partitioner.equivalence import gather_results
from shardc.partitioner.partition import partition

Step = Callable[[Builder, Instruction], Instruction]
MESHES = (Mesh({"x": 2}), Mesh({"x": 4}), Mesh({"x": 3}), Mesh({"x": 2, "y": 2}))


def splat(b: Builder, x: Instruction, value: float) -> Instruction:
    return b.add("broadcast", b.constant(value, x.shape.dtype), shape=x.shape, dimensions=())


def folded(b: Builder, x: Instruction, opcode: str) -> Instruction:
    """Rows reduced."""
    start = {"add": 0.0, "maximum": -np.inf, "or": False}[opcode]
    body = binary_computation(opcode, x.shape.dtype)
    return b.add("reduce", x, b.constant(start, x.shape.dtype), dimensions=(1,), to_apply=body)


def spread(b: Builder, rows: Instruction, like: Instruction) -> Instruction:
    return b.add("broadcast", rows, shape=like.shape, dimensions=(0,))


# -- what expressions are made of ------------------------------------------------------------------------------------


def softmax(b: Builder, x: Instruction) -> Instruction:
    e = b.add("exponential", b.add("subtract", x, spread(b, folded(b, x, "maximum"), x)))
    return b.add("divide", e, spread(b, folded(b, e, "add"), e))


def centred(b: Builder, x: Instruction) -> Instruction:
    mean = b.add("multiply", spread(b, folded(b, x, "add"), x), splat(b, x, 1 / x.shape.dims[1]))
    return b.add("subtract", x, mean)


def line(b: Builder, x: Instruction) -> Instruction:
    return b.add("add", b.add("multiply", x, splat(b, x, 1.7)), splat(b, x, 0.3))


def curve(b: Builder, x: Instruction) -> Instruction:
    return b.add("tanh", b.add("multiply", x, splat(b, x, 0.37)))


def running(b: Builder, x: Instruction) -> Instruction:
    n = x.shape.dims[1]
    window = Window((WindowDim(1), WindowDim(n, pad_low=n - 1)))
    body = binary_computation("add", x.shape.dtype)
    return b.add("reduce-window", x, b.constant(0.0, x.shape.dtype), window=window, to_apply=body)


def transposed(b: Builder, x: Instruction) -> Instruction:
    return b.add("transpose", x, dimensions=(1, 0))


STEPS: tuple[Step, ...] = (softmax, centred, line, curve, running, transposed)


def product(w: Instruction) -> Step:
    return lambda b, x: b.add("dot", x, w, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))


def recipe(r: random.Random, b: Builder, columns: int) -> list[Step]:
    """Two to four steps, a product first, to be done as often as one likes."""
    w = b.parameter(array_shape("f32", columns, r.choice((5, 16, 33))), "w")
    return [product(w), *r.choices(STEPS, k=r.randint(1, 3))]


def done(steps: Sequence[Step], b: Builder, x: Instruction) -> Instruction:
    for step in steps:
        x = step(b, x)
    return x


# -- what is picked from one ------------------------------------------------------------------------------------------


def kept(r: random.Random, b: Builder, x: Instruction) -> Instruction:
    """The largest element of a row of those that a mask keeps, or of all where it keeps none."""
    mask = b.add("compare", x, splat(b, x, r.choice((0.0, 0.1))), direction=r.choice(("LT", "GT")))
    some = b.add("broadcast", folded(b, mask, "or"), shape=array_shape("pred", *x.shape.dims), dimensions=(0,))
    kept = b.add("or", mask, b.add("not", some))
    return folded(b, b.add("select", kept, x, splat(b, x, -np.inf)), "maximum")


def in_order(r: random.Random, b: Builder, x: Instruction) -> Instruction:
    """An element of the sorted row."""
    less = Builder("less")
    one, two = (less.parameter(array_shape("f32")) for _ in range(2))
    body = less.build(less.add("compare", one, two, direction="LT"))
    k = r.randrange(x.shape.dims[1])
    column = b.add(
        "slice",
        b.add("sort", x, dimensions=(1,), is_stable=True, to_apply=body),
        slice=((0, x.shape.dims[0], 1), (k, k + 1, 1)),
    )
    return b.add("reshape", column, shape=array_shape("f32", x.shape.dims[0]))


def best(r: random.Random, b: Builder, x: Instruction) -> Instruction:
    """The worst of the best few."""
    n, k = x.shape.dims[0], r.randint(1, min(4, x.shape.dims[1]))
    values = b.add("get-tuple-element", b.add("topk", x, k=k, largest=True), index=0)
    return b.add("reshape", b.add("slice", values, slice=((0, n, 1), (k - 1, k, 1))), shape=array_shape("f32", n))


PICKS = (kept, in_order, best)


def program(r: random.Random) -> tuple[Computation, str]:
    """Is what was picked from the expression in it? And more readers, which change how kernels are cut."""
    b = Builder("main")
    x = b.parameter(array_shape("f32", r.choice((3, 8, 12)), r.choice((7, 16, 32))), "x")
    steps = recipe(r, b, x.shape.dims[1])
    pick = r.choice(PICKS)
    cut = pick(r, b, done(steps, b, x))
    again = done(steps, b, x)
    same = b.add("compare", again, spread(b, cut, again), direction="EQ")
    results = [folded(b, same, "or")]
    if r.random() < 0.6:  # a part of the expression is a result too
        results.append(done(steps[: r.randint(1, len(steps))], b, x))
    if r.random() < 0.5:
        results.append(b.add("exponential", done(steps, b, x)))
    return b.build(b.add("tuple", *results)), pick.__name__


def arguments(module: Module, seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(p.shape.dims).astype(np.float32) for p in module.parameters]


def on_a_mesh(seed: int, *, compiled: bool) -> None:
    r = random.Random(f"equal {seed}")
    computation, pick = program(r)
    mesh = r.choice(MESHES)
    module = with_shardings(computation, mesh, lambda i: random_sharding(r, mesh, i.shape.rank))
    args = arguments(module, seed)
    label = f"seed {seed}, {pick}, {mesh}"
    assert np.all(evaluate(module, args)[0]), label
    local = partition(module)
    got = gather_results(local, evaluate_spmd(local, scatter_poisoned(local, args)))
    assert np.all(got[0]), f"{label}\n{print_module(module)}\n{print_module(local)}"
    if compiled:
        config = Config()
        found = Compiled(compile_module(local, config), config=config)(*args)[0]
        assert np.all(np.asarray(found)), f"{label}, compiled\n{print_module(module)}\n{print_module(local)}"


def on_one_device(seed: int) -> None:
    computation, pick = program(random.Random(f"equal {seed}"))
    module = make_module("one", computation)
    config = Config()
    found = Compiled(compile_module(module, config), config=config)(*arguments(module, seed))[0]
    assert np.all(np.asarray(found)), f"seed {seed}, {pick}\n{print_module(module)}"


def test_what_is_picked_from_an_expression_is_in_it() -> None:
    for seed in range(20):
        on_a_mesh(seed, compiled=seed % 10 == 0)


def test_also_on_one_device() -> None:
    for seed in range(100, 104):
        on_one_device(seed)


@pytest.mark.full
@pytest.mark.parametrize("block", range(10))
def test_much_that_is_picked_is_there(block: int) -> None:
    for seed in range(1000 + 100 * block, 1100 + 100 * block):
        on_a_mesh(seed, compiled=seed % 4 == 0)
        if seed % 4 == 1:
            on_one_device(seed)
