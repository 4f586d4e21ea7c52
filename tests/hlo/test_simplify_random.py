"""Random programs, simplified: the same bits as before, whatever rules meet."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.build import Builder, binary_computation, make_module
from shardc.hlo.ir.ir import Instruction, Module
from shardc.hlo.ir.types import Shape, array_shape
from shardc.hlo.simplify.fold_constants import FoldConstants
from shardc.hlo.simplify.simplify import Simplify
from shardc.hlo.verify import verify
from tests.compiler.property_support import difference, wild

KINDS = (
    "constant", "iota", "broadcast", "reshape", "transpose", "slice", "pad", "concatenate", "reverse", "unary",
    "binary", "binary", "scalar", "compare", "select", "convert", "reduce", "product", "window", "update", "gather",
)  # fmt: skip


class Draw:
    """Grows a program of arrays with few and small dimensions, 1 among them often."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.b = Builder("main")
        self.values: list[Instruction] = []
        for dtype in ("f32", "s32"):
            self.keep(self.b.parameter(array_shape(dtype, *self.draw(st.lists(st.integers(1, 3), max_size=3)))))
        self.start = self.b.parameter(array_shape("s32"))

    def keep(self, value: Instruction) -> None:
        self.values.append(value)

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def pick(self, options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def value(self, least: int = 0) -> Instruction:
        found = [v for v in self.values[-8:] if v.shape.rank >= least and v.shape.dtype.kind != "pred"]
        found = found or [v for v in self.values if v.shape.rank >= least and v.shape.dtype.kind != "pred"]
        if not found:
            return self.broadcast(self.values[0])
        # Chains are what most rules are about.
        return found[-1] if self.number(0, 3) else self.pick(found)

    def like(self, x: Instruction) -> Instruction:
        return self.pick([x, *(v for v in self.values if v.shape.plain == x.shape.plain)])

    def grow(self) -> None:
        kind = self.pick(KINDS)
        least = 1 if kind in ("slice", "pad", "concatenate", "reverse", "reduce", "window", "update", "gather") else 0
        self.keep(getattr(self, kind)(self.value(least)))

    def add(self, opcode: str, *operands: Instruction, **attrs: Any) -> Instruction:
        return self.b.add(opcode, *operands, **attrs)

    def splat(self, value: Any, shape: Shape) -> Instruction:
        return self.b.constant(value, shape.dtype.name, shape.dims)

    # Each makes an instruction from one that is there.

    def constant(self, x: Instruction) -> Instruction:
        return self.splat(self.pick((0, 1, -1, 2, 3)), x.shape)

    def iota(self, x: Instruction) -> Instruction:
        dims = (*x.shape.dims, self.number(1, 3))
        return self.add("iota", shape=array_shape("s32", *dims), iota_dimension=self.number(0, len(dims) - 1))

    def broadcast(self, x: Instruction) -> Instruction:
        place = self.number(0, x.shape.rank)
        dims = (*x.shape.dims[:place], self.number(1, 3), *x.shape.dims[place:])
        if len(dims) > 4:
            return x
        kept = tuple(d for d in range(len(dims)) if d != place)
        return self.add("broadcast", x, shape=x.shape.with_dims(dims), dimensions=kept)

    def reshape(self, x: Instruction) -> Instruction:
        dims = [n for n in x.shape.dims if n != 1]
        if len(dims) > 1 and self.number(0, 1):
            dims[:2] = [dims[0] * dims[1]]
        for _ in range(self.number(0, 1)):
            dims.insert(self.number(0, len(dims)), 1)
        return self.add("reshape", x, shape=x.shape.with_dims(tuple(dims)))

    def transpose(self, x: Instruction) -> Instruction:
        return self.add("transpose", x, dimensions=tuple(self.draw(st.permutations(range(x.shape.rank)))))

    def slice(self, x: Instruction) -> Instruction:
        bounds = []
        for n in x.shape.dims:
            low = self.number(0, n - 1)
            bounds.append((low, self.number(low + 1, n), self.number(1, 2)))
        return self.add("slice", x, slice=tuple(bounds))

    def pad(self, x: Instruction) -> Instruction:
        zero = self.b.constant(0, x.shape.dtype.name)
        around = [(self.number(-1 if n > 2 else 0, 1), self.number(0, 1), self.number(0, 1)) for n in x.shape.dims]
        return self.add("pad", x, zero, padding=tuple(around))

    def concatenate(self, x: Instruction) -> Instruction:
        return self.add("concatenate", x, self.like(x), dimensions=(self.number(0, x.shape.rank - 1),))

    def reverse(self, x: Instruction) -> Instruction:
        dims = self.draw(st.sets(st.integers(0, x.shape.rank - 1), min_size=1))
        return self.add("reverse", x, dimensions=tuple(sorted(dims)))

    def unary(self, x: Instruction) -> Instruction:
        return self.add(self.pick(("negate", "abs", "sign", "negate")), x)

    def binary(self, x: Instruction) -> Instruction:
        return self.add(self.pick(("add", "subtract", "multiply", "maximum", "minimum")), x, self.like(x))

    def scalar(self, x: Instruction) -> Instruction:
        c = self.splat(self.pick((0, 1, 2, -4, 3)), x.shape)
        opcodes = ("add", "subtract", "multiply", *(("divide", "power") if x.shape.dtype.is_float else ()))
        return self.add(self.pick(opcodes), x, c)

    def compare(self, x: Instruction) -> Instruction:
        other = self.like(x) if self.number(0, 1) else self.splat(self.pick((0, 1, 3)), x.shape)
        p = self.add("compare", x, other, direction=self.pick(("EQ", "NE", "LT", "LE", "GT", "GE")))
        p = self.add("not", p) if self.number(0, 1) else p
        return self.add("select", p, x, other)

    def select(self, x: Instruction) -> Instruction:
        p = self.add("compare", x, self.like(x), direction="LT")
        inner = self.add("select", p, x, self.like(x))
        return self.add("select", p, inner, self.like(x))

    def convert(self, x: Instruction) -> Instruction:
        # Floats that integers cannot hold are nobody's business here.
        small = x if x.shape.dtype.is_integer else self.add("sign", x)
        finite = self.add("select", self.add("compare", small, small, direction="EQ"), small, self.splat(0, x.shape))
        return self.add("convert", finite, shape=array_shape("s32" if x.shape.dtype.is_float else "f32", *x.shape.dims))

    def reduce(self, x: Instruction) -> Instruction:
        dims = tuple(sorted(self.draw(st.sets(st.integers(0, x.shape.rank - 1)))))
        opcode = self.pick(("maximum", "minimum") if x.shape.dtype.is_float else ("maximum", "add"))
        body = binary_computation(opcode, x.shape.dtype.name)
        return self.add("reduce", x, self.b.constant(0, x.shape.dtype.name), dimensions=dims, to_apply=body)

    def product(self, x: Instruction) -> Instruction:
        y = self.like(x)
        if x.shape.rank > 2 or x.shape.size > 30:
            return x
        batch = tuple(range(min(x.shape.rank, self.number(0, 1))))
        return self.add("dot", x, y, lhs_batch_dims=batch, rhs_batch_dims=batch)

    def starts(self, x: Instruction) -> list[Instruction]:
        return [self.pick((self.start, self.b.constant(self.number(-1, 2), "s32"))) for _ in x.shape.dims]

    def window(self, x: Instruction) -> Instruction:
        sizes = tuple(self.number(1, n) for n in x.shape.dims)
        return self.add("dynamic-slice", x, *self.starts(x), dynamic_slice_sizes=sizes)

    def update(self, x: Instruction) -> Instruction:
        starts = self.starts(x)
        sizes = tuple(self.number(1, n) for n in x.shape.dims)
        part = self.add("dynamic-slice", self.like(x), *starts, dynamic_slice_sizes=sizes)
        whole = self.add("dynamic-update-slice", x, part, *starts)
        back = self.add("dynamic-slice", whole, *starts, dynamic_slice_sizes=sizes)
        return self.add("dynamic-update-slice", whole, back, *self.starts(x))

    def gather(self, x: Instruction) -> Instruction:
        indices = self.add("broadcast", self.start, shape=array_shape("s32", x.shape.rank), dimensions=())
        sizes = tuple(self.number(1, n) for n in x.shape.dims)
        return self.add(
            "gather", x, indices, offset_dims=tuple(range(x.shape.rank)), collapsed_slice_dims=(),
            start_index_map=tuple(range(x.shape.rank)), index_vector_dim=0, slice_sizes=sizes,
        )  # fmt: skip


@st.composite
def programs(draw: st.DrawFn) -> Module:
    d = Draw(draw)
    for _ in range(draw(st.integers(3, 14))):
        d.grow()
        if d.values[-1].shape.size > 400:
            d.values.pop()
    results = d.values[-3:]
    return make_module("random", d.b.build(d.b.add("tuple", *results)))


@settings(max_examples=120, deadline=None)
@given(programs(), st.integers(0, 99))
def test_random_programs(module: Module, seed: int) -> None:
    verify(module)
    after = Simplify().run(FoldConstants().run(Simplify().run(module)))
    verify(after)
    args = [wild(p.shape, seed + n) for n, p in enumerate(module.parameters)]
    args[2] = np.asarray(seed % 5 - 1, np.int32)
    for got, wanted in zip(evaluate(after, args), evaluate(module, args), strict=True):
        assert not difference(got, wanted, 0)
