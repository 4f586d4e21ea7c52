"""Random programs: whatever passes and buffers do, the compiled step computes what the evaluator does."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.build import Builder, binary_computation, make_module
from shardc.hlo.ir.ir import Instruction, Module
from shardc.hlo.ir.types import array_shape
from tests.compiler.checking import assert_close, check, compiled_results, random_arguments
from tests.compiler.evaluator_kernels import EvaluatorKernels

UNARY = ("negate", "abs", "sine", "tanh", "floor", "sign")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum")


class Draw:
    """Grows a program; values are kept by shape so that operands are easy to find."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.b = Builder("main")
        self.values: list[Instruction] = []

    def pick(self, options: object) -> object:
        return self.draw(st.sampled_from(options))  # type: ignore[arg-type]

    def value(self) -> Instruction:
        return self.values[-1 - self.draw(st.integers(0, min(len(self.values), 6) - 1))]

    def like(self, x: Instruction) -> Instruction:
        same = [v for v in self.values if v.shape.dims == x.shape.dims]
        return self.pick(same)  # type: ignore[return-value]

    def grow(self) -> Instruction:
        x = self.value()
        kind = self.pick(("unary", "binary", "binary", "select", "movement", "reduce", "constant"))
        return getattr(self, kind)(x)  # type: ignore[no-any-return]

    def unary(self, x: Instruction) -> Instruction:
        return self.b.add(self.pick(UNARY), x)  # type: ignore[arg-type]

    def binary(self, x: Instruction) -> Instruction:
        return self.b.add(self.pick(BINARY), x, self.like(x))  # type: ignore[arg-type]

    def select(self, x: Instruction) -> Instruction:
        y = self.like(x)
        return self.b.add("select", self.b.add("compare", x, y, direction="LT"), y, self.like(x))

    def constant(self, x: Instruction) -> Instruction:
        return self.b.add("multiply", x, self.b.constant(self.pick((0.5, 1.0, -2.0)), "f32", x.shape.dims))

    def reduce(self, x: Instruction) -> Instruction:
        if not x.shape.dims:
            return self.unary(x)
        d = self.draw(st.integers(0, x.shape.rank - 1))
        op = self.pick(("add", "maximum"))
        zero = self.b.constant(0.0, "f32")
        r = self.b.add("reduce", x, zero, dimensions=(d,), to_apply=binary_computation(op, "f32"))  # type: ignore[arg-type]
        self.values.append(r)
        dims = tuple(k for k in range(x.shape.rank) if k != d)
        return self.b.add("broadcast", r, shape=x.shape, dimensions=dims)

    def movement(self, x: Instruction) -> Instruction:
        if x.shape.rank < 2:
            return self.b.add("reshape", x, shape=array_shape("f32", 1, x.shape.size))
        kind = self.pick(("transpose", "reshape", "slice", "pad", "reverse", "concatenate"))
        dims, rank = x.shape.dims, x.shape.rank
        if kind == "transpose":
            return self.b.add("transpose", x, dimensions=tuple(self.draw(st.permutations(range(rank)))))
        if kind == "reshape":
            return self.b.add("reshape", x, shape=array_shape("f32", *reversed(dims)))
        if kind == "slice":
            bounds = tuple((0, n, 1) if n < 3 else (1, n, self.draw(st.integers(1, 2))) for n in dims)
            return self.b.add("slice", x, slice=bounds)
        if kind == "pad":
            if x.shape.size > 2000:
                return self.unary(x)
            low = self.draw(st.integers(-1 if min(dims) > 1 else 0, 1))
            return self.b.add("pad", x, self.b.constant(0.25, "f32"), padding=((low, 1, 1),) * rank)
        if kind == "reverse":
            return self.b.add("reverse", x, dimensions=(self.draw(st.integers(0, rank - 1)),))
        if x.shape.size > 2000:
            return self.unary(x)
        return self.b.add("concatenate", x, self.like(x), dimensions=(0,))


@st.composite
def modules(draw: st.DrawFn) -> Module:
    d = Draw(draw)
    for _ in range(draw(st.integers(1, 3))):
        dims = draw(st.sampled_from([(4, 6), (3, 17), (2, 3, 5), (8,), ()]))
        d.values.append(d.b.parameter(array_shape("f32", *dims)))
    for _ in range(draw(st.integers(1, 14))):
        d.values.append(d.grow())
    count = draw(st.integers(1, 3))
    return make_module("random", d.b.build(d.b.add("tuple", *(d.value() for _ in range(count)))))


@settings(max_examples=60, deadline=None, derandomize=True, print_blob=False)
@given(modules())
def test_compiled_equals_evaluated(module: Module) -> None:
    check(module, tolerance=1e-4)


@settings(max_examples=150, deadline=None, derandomize=True, print_blob=False)
@given(modules(), st.booleans())
def test_lowering_keeps_every_bit(module: Module, donate: bool) -> None:
    if donate:
        module = module.with_(donors=tuple(range(len(module.parameters))))
    args = random_arguments(module)
    got = compiled_results(module, args, EvaluatorKernels())
    assert_close(got, evaluate(module, args), 1e-6)
