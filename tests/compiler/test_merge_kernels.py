"""Kernels that share big arrays become one: what is left of known programs, and random ones against the evaluator."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardc
from shardc.compiler.lower.lowered import KernelStep, leaf_steps, memory_analysis
from shardc.compiler.lower.pipeline import lower
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.build import Builder, binary_computation, make_module
from shardc.hlo.ir.ir import Instruction, Module
from shardc.hlo.ir.types import array_shape
from tests.compiler.checking import assert_close, check, compiled_results, program, random_arguments


def kernels(module: Module) -> list[str]:
    """Opcodes of the kernels that a module becomes."""
    return [s.instruction.opcode for s in leaf_steps(lower(module).steps) if isinstance(s, KernelStep)]


def from_jax(f: object, *shapes: tuple[int, ...]) -> Module:
    arguments = [jax.ShapeDtypeStruct(s, np.float32) for s in shapes]
    return shardc.from_jax(jax.jit(f), *arguments).module


def layer_norm(x: jax.Array, g: jax.Array, b: jax.Array) -> jax.Array:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * g + b


def rms_norm(x: jax.Array, g: jax.Array, b: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * g + b


def masked_softmax(x: jax.Array, g: jax.Array, b: jax.Array) -> jax.Array:
    causal = jnp.tril(jnp.ones(x.shape[-2:], bool))
    return jax.nn.softmax(jnp.where(causal, x * 0.125, -1e9), axis=-1) * g + b


def log_softmax(x: jax.Array, g: jax.Array, b: jax.Array) -> jax.Array:
    return jax.nn.log_softmax(x * g + b)


NORMS = (layer_norm, rms_norm, masked_softmax, log_softmax)
SHAPES = ((3, 37, 41), (41,), (41,))


@pytest.mark.parametrize("norm", NORMS)
def test_a_normaliser_is_one_kernel(norm: object) -> None:
    module = from_jax(norm, *SHAPES)
    assert kernels(module) == ["fusion"]
    check(module)


@pytest.mark.parametrize("norm", NORMS)
def test_its_gradient_is_two(norm: object) -> None:
    """One along the rows, and one for the sums over them."""

    def pulled(x: jax.Array, g: jax.Array, b: jax.Array, y: jax.Array) -> object:
        return jax.vjp(norm, x, g, b)[1](y)  # type: ignore[arg-type]

    module = from_jax(pulled, *SHAPES, SHAPES[0])
    found = kernels(module)
    assert set(found) == {"fusion"}
    assert len(found) <= 3
    check(module)


def test_a_normaliser_takes_its_operand_s_memory() -> None:
    """The row kernel writes in place, so that the intermediate value costs nothing."""
    module = from_jax(lambda a, b: jax.nn.softmax(a @ b), (64, 8), (8, 512))
    plan = memory_analysis(lower(module))
    assert plan["temporary_bytes"] <= 64 * 512
    check(module)


def test_an_update_of_two_moments_is_one_kernel() -> None:
    def adam(p: jax.Array, m: jax.Array, v: jax.Array, g: jax.Array) -> object:
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        return p - 0.1 * m / (jnp.sqrt(v) + 1e-8), m, v

    module = from_jax(adam, *[(40, 30)] * 4)
    assert kernels(module) == ["fusion"]
    check(module, [np.abs(a) for a in random_arguments(module)])


def test_what_depends_on_a_kernel_between_is_not_merged() -> None:
    less = "less {\na = f32[] parameter(0)\nb = f32[] parameter(1)\nROOT c = pred[] compare(a, b), direction=LT\n}\n"
    module = program(
        "x = f32[40,40] parameter(0)\na = f32[40,40] tanh(x)\n"
        "d = f32[40,40] sort(a), dimensions={1}, to_apply=less\n"
        "b = f32[40,40] add(x, d)\nROOT t = (f32[40,40], f32[40,40]) tuple(a, b)",
        less,
    )
    assert sorted(kernels(module)) == ["add", "sort", "tanh"]
    check(module)


def test_a_result_does_not_overwrite_what_is_still_read() -> None:
    """The sum could be written at once, but its operand's memory is read by a later loop over the row."""

    def f(a: jax.Array) -> object:
        x = a[::-1, ::-1]
        return jnp.tanh(x), jax.nn.softmax(x)

    module = from_jax(f, (7, 50))
    assert kernels(module) == ["reverse", "fusion"]
    check(module)


def test_a_value_read_at_other_indices_is_in_memory_first() -> None:
    def f(x: jax.Array) -> object:
        y = jnp.tanh(x)
        return y, jnp.pad(y[:, :-1], ((0, 0), (1, 0))) * y

    module = from_jax(f, (7, 50))
    assert len(kernels(module)) == 2
    check(module)


class Rows:
    """Grows a program of values with an element per index, and values with one per row."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.b = Builder("main")
        size = st.integers(1, 5)
        self.rows = tuple(draw(st.lists(size, max_size=2)))
        self.columns = draw(st.sampled_from(((1,), (3,), (17,), (64,), (130,), (4, 9), (700,))))
        self.dtype = draw(st.sampled_from(("f32", "f32", "f64", "bf16", "s32")))
        whole = self.rows + self.columns
        self.full: list[Instruction] = [self.parameter(whole) for _ in range(draw(st.integers(1, 3)))]
        if draw(st.booleans()):  # a kernel's result, whose memory others may take
            whole_dims = tuple(range(len(whole)))
            self.full[0] = self.b.add("reverse", self.full[0], dimensions=whole_dims)
        self.per_row: list[Instruction] = [self.parameter(self.rows)] if draw(st.booleans()) else []

    def parameter(self, dims: tuple[int, ...]) -> Instruction:
        return self.b.parameter(array_shape(self.dtype, *dims))

    def pick(self, options: list[Instruction]) -> Instruction:
        return options[-1 - self.draw(st.integers(0, min(len(options), 4) - 1))]

    def unary(self, options: list[Instruction]) -> None:
        ops = ("negate", "abs") if self.dtype == "s32" else ("negate", "tanh", "exponential", "abs", "logistic")
        x = self.pick(options)
        x = self.b.add("minimum", x, self.b.constant(1, self.dtype, x.shape.dims))
        options.append(self.b.add(self.draw(st.sampled_from(ops)), x))

    def binary(self, options: list[Instruction]) -> None:
        op = self.draw(st.sampled_from(("add", "subtract", "maximum", "minimum")))
        options.append(self.b.add(op, self.pick(options), self.pick(options)))

    def reduce(self) -> None:
        x = self.pick(self.full)
        op, start = self.draw(st.sampled_from((("add", 0.0), ("maximum", -1.0), ("minimum", 2.0))))
        first = len(self.rows)
        dims = tuple(range(first, first + len(self.columns)))
        reducer = binary_computation(op, self.dtype)
        init = self.b.constant(start, self.dtype)
        self.per_row.append(self.b.add("reduce", x, init, dimensions=dims, to_apply=reducer))

    def back(self) -> None:
        if not self.per_row:
            self.reduce()
        r = self.pick(self.per_row)
        dims = tuple(range(len(self.rows)))
        spread = self.b.add("broadcast", r, shape=self.full[0].shape, dimensions=dims)
        self.full.append(self.b.add("subtract", self.pick(self.full), spread))

    def moved(self, x: Instruction) -> Instruction:
        """The same elements elsewhere: reversed, or shifted by one with a constant put in front."""
        d = self.draw(st.integers(0, x.shape.rank - 1))
        if self.draw(st.booleans()):
            return self.b.add("reverse", x, dimensions=(d,))
        ends = tuple((0, n - 1 if k == d else n, 1) for k, n in enumerate(x.shape.dims))
        widths = tuple((int(k == d), 0, 0) for k in range(x.shape.rank))
        return self.b.add("pad", self.b.add("slice", x, slice=ends), self.b.constant(1, self.dtype), padding=widths)

    def grow(self) -> None:
        kind = self.draw(st.sampled_from(("unary", "binary", "reduce", "back", "back", "row", "move")))
        if kind == "unary":
            self.unary(self.full)
        elif kind == "binary":
            self.binary(self.full)
        elif kind == "reduce":
            self.reduce()
        elif kind == "back":
            self.back()
        elif kind == "move":
            self.full.append(self.moved(self.pick(self.draw(st.sampled_from((self.full, self.full[:1]))))))
        elif self.per_row:
            self.draw(st.sampled_from((self.unary, self.binary)))(self.per_row)

    def module(self) -> Module:
        values = [*self.full, *self.per_row]
        results = self.draw(st.lists(st.sampled_from(values), min_size=1, max_size=4, unique_by=id))
        c = self.b.build(self.b.add("tuple", *results))
        donors = self.draw(st.sets(st.integers(0, len(c.parameters) - 1)))
        return make_module("rows", c).with_(donors=tuple(sorted(donors)))


def awkward(module: Module, seed: int) -> list[np.ndarray]:
    """Random arguments, some elements of which are NaN, infinite or denormal."""
    rng = np.random.default_rng(seed)
    arguments = random_arguments(module, seed)
    for a in arguments:
        if a.dtype.kind != "i" and a.size and seed % 3 == 0:
            at = rng.integers(0, a.size, 2)
            a.reshape(-1)[at] = rng.choice([np.nan, np.inf, -np.inf, 1e-39, -0.0], 2)
    return arguments


@settings(max_examples=60, deadline=None, derandomize=True, print_blob=False)
@given(st.data())
def test_random_rows(data: st.DataObject) -> None:
    rows = Rows(data.draw)
    for _ in range(data.draw(st.integers(2, 9))):
        rows.grow()
    module = rows.module()
    arguments = awkward(module, data.draw(st.integers(0, 1000)))
    wanted = evaluate(module, arguments)
    tolerance = {"f64": 1e-12, "bf16": 0.1}.get(rows.dtype, 1e-4)
    assert_close(compiled_results(module, arguments), wanted, tolerance)


def test_rows_of_a_reshaped_array_and_of_its_results() -> None:
    def f(x: jax.Array) -> object:
        y = jnp.tanh(x)  # read with other dimensions, so it is made before
        rows = jax.nn.softmax(x.reshape(-1, 50) * 2)
        return y, rows.reshape(10, 350) + 1, jax.nn.softmax(y.reshape(-1, 50))

    module = from_jax(f, (10, 350))
    assert kernels(module).count("fusion") >= 2
    check(module)


def test_a_reshaped_argument_has_rows() -> None:
    module = from_jax(lambda x: jax.nn.softmax(x.reshape(-1, 50)), (7, 350))
    assert kernels(module) == ["fusion"]
    check(module)
