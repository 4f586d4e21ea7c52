"""Random programs, random meshes, random shardings: partitioned equals unpartitioned, exactly.

Values are small integers as floats and every operation keeps them so, hence any order of summation gives the same.
The seed in a failing test's name makes the program again.
"""

from __future__ import annotations

import random

import pytest
from partition_programs import matmul, total, zeros
from partition_support import check, random_sharding, with_shardings

from shardc.hlo.build import Builder, make_module
from shardc.hlo.ir import Instruction
from shardc.hlo.mesh import Mesh
from shardc.hlo.types import array_shape
from shardc.sharding.propagate import propagate

MESHES = (
    Mesh({"x": 2}),
    Mesh({"x": 2, "y": 2}),
    Mesh({"x": 2, "y": 4}),
    Mesh({"x": 3, "y": 2}),
    Mesh({"x": 2, "y": 2, "z": 2}),
    Mesh({"x": 2, "y": 3}, (3, 1, 5, 0, 2, 4)),
)
SIZES = (1, 2, 3, 4, 6, 8)


class Growing:
    """A program that grows by random operations on values it has; integers stay small by clamping."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.b = Builder("main")
        self.values: list[Instruction] = []
        for _ in range(self.r.randint(2, 4)):
            self.parameter(self.sizes(self.r.randint(1, 3)))

    def sizes(self, rank: int) -> tuple[int, ...]:
        return tuple(self.r.choice(SIZES) for _ in range(rank))

    def parameter(self, sizes: tuple[int, ...]) -> Instruction:
        self.values.append(self.b.parameter(array_shape("f32", *sizes)))
        return self.values[-1]

    def pick(self) -> Instruction:
        return self.r.choice(self.values[-6:])

    def small(self, x: Instruction) -> Instruction:
        return self.b.add("clamp", self.b.constant(-4.0, "f32"), x, self.b.constant(4.0, "f32"))

    def like(self, x: Instruction) -> Instruction:
        """Another value of the same shape."""
        same = [v for v in self.values if v.shape == x.shape and v is not x]
        return self.r.choice(same) if same and self.r.random() < 0.7 else self.parameter(x.shape.dims)

    def step(self) -> None:
        x = self.pick()
        choices = [self.unary, self.binary, self.transpose, self.reduce, self.broadcast, self.reshape, self.cut]
        if x.shape.rank == 2:
            choices += [self.product, self.product, self.product]
        self.values.append(self.r.choice(choices)(x))

    def unary(self, x: Instruction) -> Instruction:
        return self.b.add(self.r.choice(["negate", "abs", "copy", "sign"]), x)

    def binary(self, x: Instruction) -> Instruction:
        y = self.like(x)
        opcode = self.r.choice(["add", "subtract", "maximum", "minimum", "multiply"])
        out = self.b.add(opcode, x, y)
        return self.small(out) if opcode == "multiply" or self.r.random() < 0.2 else out

    def transpose(self, x: Instruction) -> Instruction:
        order = list(range(x.shape.rank))
        self.r.shuffle(order)
        return self.b.add("transpose", x, dimensions=tuple(order))

    def reduce(self, x: Instruction) -> Instruction:
        d = self.r.randrange(x.shape.rank)
        op = self.r.choice(["add", "add", "maximum", "minimum"])
        out = total(self.b, x, (d,), op, self.r.choice([0.0, 1.0]))
        back = tuple(k for k in range(x.shape.rank) if k != d)
        return self.b.add("broadcast", out, shape=x.shape, dimensions=back) if not out.shape.rank else out

    def broadcast(self, x: Instruction) -> Instruction:
        if x.shape.rank > 2:
            return self.unary(x)
        return self.b.add(
            "broadcast",
            x,
            shape=array_shape("f32", self.r.choice(SIZES), *x.shape.dims),
            dimensions=tuple(range(1, x.shape.rank + 1)),
        )

    def reshape(self, x: Instruction) -> Instruction:
        dims = x.shape.dims
        if len(dims) > 1 and self.r.random() < 0.6:
            return self.b.add("reshape", x, shape=array_shape("f32", dims[0] * dims[1], *dims[2:]))
        for factor in (2, 3):
            if dims[0] % factor == 0 and len(dims) < 3:
                return self.b.add("reshape", x, shape=array_shape("f32", factor, dims[0] // factor, *dims[1:]))
        return self.unary(x)

    def cut(self, x: Instruction) -> Instruction:
        d = self.r.randrange(x.shape.rank)
        limit = self.r.randint(1, x.shape.dims[d])
        bounds = tuple((0, limit if k == d else n, 1) for k, n in enumerate(x.shape.dims))
        return self.b.add("slice", x, slice=bounds)

    def product(self, x: Instruction) -> Instruction:
        y = self.parameter((x.shape.dims[1], self.r.choice(SIZES)))
        out = matmul(self.b, self.small(x), y)
        if self.r.random() < 0.4:
            scale = zeros(self.b, *out.shape.dims, value=self.r.choice([2.0, -1.0]))
            out = self.b.add("multiply", out, scale)
        return out

    def loop(self) -> None:
        """Wrap a few operations into a loop that carries the last value."""
        x = self.small(self.pick())
        init = self.b.add("tuple", self.b.constant(0, "s32"), x)
        c = Builder("condition")
        p = c.parameter(init.shape)
        limit = c.constant(self.r.randint(0, 3), "s32")
        test = c.build(c.add("compare", c.add("get-tuple-element", p, index=0), limit, direction="LT"))
        inner = Builder("body")
        p = inner.parameter(init.shape)
        i, y = (inner.add("get-tuple-element", p, index=k) for k in range(2))
        d = self.r.randrange(x.shape.rank)
        s = total(inner, y, (d,))
        back = tuple(k for k in range(x.shape.rank) if k != d)
        y = inner.add("subtract", y, inner.add("broadcast", s, shape=x.shape, dimensions=back))
        y = inner.add("clamp", inner.constant(-4.0, "f32"), y, inner.constant(4.0, "f32"))
        body = inner.build(inner.add("tuple", inner.add("add", i, inner.constant(1, "s32")), y))
        out = self.b.add("while", init, condition=test, body=body)
        self.values.append(self.b.add("get-tuple-element", out, index=1))

    def finish(self) -> Instruction:
        chosen = self.values[-1:] + [v for v in self.values[:-1] if self.r.random() < 0.15]
        return self.b.add("tuple", *chosen)


def grow(seed: int) -> Growing:
    program = Growing(seed)
    for _ in range(program.r.randint(3, 18)):
        program.step()
        if program.r.random() < 0.06:
            program.loop()
    return program


def run(seed: int) -> None:
    """Every value has a sharding of its own: the worst that a propagation could leave behind."""
    program = grow(seed)
    mesh = program.r.choice(MESHES)
    computation = program.b.build(program.finish())
    used = program.r.choice([0.3, 0.7, 1.0])
    module = with_shardings(computation, mesh, lambda i: random_sharding(program.r, mesh, i.shape.rank, used))
    check(module, seed=seed)


def run_propagated(seed: int) -> None:
    """Only parameters are annotated; propagation decides the rest."""
    program = grow(seed)
    mesh = program.r.choice(MESHES)
    b = program.b
    root = program.finish()
    new: dict[Instruction, Instruction] = {}
    fresh = Builder("main")
    for i in b.instructions:
        sharding = i.sharding
        if i.opcode == "parameter" and program.r.random() < 0.8:
            sharding = random_sharding(program.r, mesh, i.shape.rank)
        new[i] = fresh.append(i.replace(operands=tuple(new[o] for o in i.operands), sharding=sharding))
    module = make_module("fuzz", fresh.build(new[root]), mesh=mesh)
    check(propagate(module).module, seed=seed)


@pytest.mark.parametrize("seed", range(60))
def test_random_program(seed: int) -> None:
    run(seed)


@pytest.mark.parametrize("seed", range(1000, 1040))
def test_random_propagated_program(seed: int) -> None:
    run_propagated(seed)


@pytest.mark.full
@pytest.mark.parametrize("block", range(20))
def test_many_random_programs(block: int) -> None:
    for seed in range(10_000 + 50 * block, 10_050 + 50 * block):
        run(seed)
        run_propagated(seed)
