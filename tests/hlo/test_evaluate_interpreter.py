"""The machine: arguments and results, the float64 reference, custom calls, bodies of every kind, size and memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from shardc.hlo.errors import InputError, RunError, UnsupportedError
from shardc.hlo.evaluate import ROWS, evaluate
from shardc.hlo.ir.build import Builder, binary_computation, make_module
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.opset import OPS
from shardc.hlo.ir.types import Layout, Shape, array_shape, token_shape, tuple_shape

F = array_shape("f32")


def test_rows_cover_the_op_set() -> None:
    assert set(ROWS) == set(OPS)
    for opcode, row in ROWS.items():
        known = row.local is not None or row.lockstep is not None
        assert known != bool(row.why), f"{opcode} needs a meaning or a reason for having none"


def program(*shapes: Shape, build: Any) -> Any:
    b = Builder("main")
    parameters = [b.parameter(s) for s in shapes]
    return make_module("m", b.build(build(b, *parameters)))


def test_tuples_are_flat_outside() -> None:
    nested = tuple_shape(array_shape("f32", 2), tuple_shape(array_shape("s32"), token_shape()))

    def build(b: Builder, p: Instruction, q: Instruction) -> Instruction:
        inner = b.add("get-tuple-element", p, index=1)
        return b.add("tuple", q, b.add("tuple", inner, b.add("get-tuple-element", p, index=0)))

    module = program(nested, F, build=build)
    args = [np.array([1, 2], np.float32), np.array(3, np.int32), np.array(4, np.float32)]
    results = evaluate(module, args)
    assert [r.tolist() for r in results] == [4.0, 3, [1.0, 2.0]]


def test_wrong_arguments() -> None:
    module = program(array_shape("f32", 2), build=lambda b, x: x)
    with pytest.raises(InputError, match="has 1 parameter, but got 2 arguments"):
        evaluate(module, [np.zeros(2, np.float32)] * 2)
    with pytest.raises(InputError, match=r"argument 0 is float32\[3\], not f32\[2\]"):
        evaluate(module, [np.zeros(3, np.float32)])
    with pytest.raises(InputError, match=r"argument 0 is int32\[2\]"):
        evaluate(module, [np.zeros(2, np.int32)])


def test_float64_reference() -> None:
    """Small floats are carried in f64; constants keep the value they had; bits are read in the declared type."""

    def build(b: Builder, x: Instruction) -> Instruction:
        third = b.constant(np.asarray(1 / 3, ml_dtypes.bfloat16))
        wide = b.add("convert", b.add("multiply", x, third), shape=F)
        bits = b.add("bitcast-convert", b.add("exponential", wide), shape=array_shape("s32"))
        return b.add("tuple", wide, b.add("sine", wide), bits)

    module = program(array_shape("bf16"), build=build)
    x = np.asarray(1.7, ml_dtypes.bfloat16)
    wide, sine, bits = evaluate(module, [x], float64=True)
    exact = float(x) * float(np.asarray(1 / 3, ml_dtypes.bfloat16))
    assert wide.dtype == sine.dtype == np.float64
    assert float(wide) == exact
    assert float(sine) == np.sin(exact)
    assert int(bits) == int(np.float32(np.exp(exact)).view(np.int32))
    assert evaluate(module, [x])[0].dtype == np.float32


def test_float64_of_complex_and_reductions() -> None:
    values = np.random.default_rng(0).standard_normal(1000).astype(np.float32)

    def build(b: Builder, x: Instruction) -> Instruction:
        total = b.add("reduce", x, b.constant(0.0, "f32"), dimensions=(0,), to_apply=binary_computation("add", "f32"))
        return b.add("tuple", total, b.add("complex", total, total))

    total, pair = evaluate(program(array_shape("f32", 1000), build=build), [values], float64=True)
    assert total.dtype == np.float64
    assert pair.dtype == np.complex128
    np.testing.assert_allclose(total, values.astype(np.float64).sum(), rtol=1e-14)


def test_sixty_thousand_instructions_and_early_release() -> None:
    """A long chain of whole arrays holds a few of them at a time."""
    b = Builder("main")
    x = b.parameter(array_shape("f32", 256))
    for _ in range(60_000):
        x = b.add("negate", x)
    module = make_module("m", b.build())
    value = np.ones(256, np.float32)
    assert evaluate(module, [value])[0].tolist() == [1.0] * 256
    b = Builder("main")
    x = b.parameter(array_shape("f32", 1 << 18))
    for _ in range(30):
        x = b.add("negate", x)
    module, value = make_module("m", b.build()), np.ones(1 << 18, np.float32)
    tracemalloc.start()
    evaluate(module, [value])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * value.nbytes


def test_arguments_are_never_written() -> None:
    def build(b: Builder, x: Instruction) -> Instruction:
        zero = b.constant(0, "s32")
        updated = b.add("dynamic-update-slice", x, b.constant(1.0, "f32", (1,)), zero)
        return b.add("tuple", updated, b.add("copy", x))

    x = np.zeros(4, np.float32)
    x.flags.writeable = False
    first, second = evaluate(program(array_shape("f32", 4), build=build), [x])
    assert first.tolist() == [1, 0, 0, 0]
    assert second.tolist() == [0, 0, 0, 0]


def test_huge_splats_cost_nothing() -> None:
    def build(b: Builder) -> Instruction:
        big = b.constant(2.0, "f32", (1 << 20, 1 << 20))
        return b.add("slice", big, slice=((0, 2, 1), (5, 6, 1)))

    assert evaluate(program(build=build), [])[0].tolist() == [[2.0], [2.0]]


def reduce_with(body: Computation, x: Any) -> Any:
    b = Builder("main")
    p = b.parameter(array_shape("f32", *x.shape))
    b.add("reduce", p, b.constant(0.0, "f32"), dimensions=(0,), to_apply=body)
    return evaluate(make_module("m", b.build()), [x])[0]


def test_reducing_bodies_of_every_kind() -> None:
    x = np.random.default_rng(0).standard_normal((37, 3)).astype(np.float32)
    swapped = Builder("swapped")
    p, q = swapped.parameter(F), swapped.parameter(F)
    np.testing.assert_allclose(reduce_with(swapped.build(swapped.add("add", q, p)), x), x.sum(0), rtol=1e-5)
    called = Builder("called")
    p, q = called.parameter(F), called.parameter(F)
    inner = called.add("call", p, q, to_apply=binary_computation("maximum", "f32"))
    np.testing.assert_array_equal(reduce_with(called.build(inner), x), np.maximum(x.max(0), 0))
    # A loop inside the body cannot run on whole arrays: it goes element by element.
    looping = Builder("looping")
    p, q = looping.parameter(F), looping.parameter(F)
    condition = Builder("condition")
    s = condition.parameter(F)
    condition.add("compare", s, condition.constant(1e9, "f32"), direction="GT")
    body = Builder("body")
    body.add("multiply", body.parameter(F), body.constant(0.5, "f32"))
    total = looping.add("while", looping.add("add", p, q), condition=condition.build(), body=body.build())
    np.testing.assert_allclose(reduce_with(looping.build(total), x), x.sum(0), rtol=1e-5)


def test_map() -> None:
    body = Builder("square_plus")
    p, q = body.parameter(F), body.parameter(F)
    square_plus = body.build(body.add("add", body.add("multiply", p, p), q))

    def build(b: Builder, x: Instruction) -> Instruction:
        return b.add("map", x, x, to_apply=square_plus, dimensions=(0,))

    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(evaluate(program(array_shape("f32", 4), build=build), [x])[0], x * x + x)


def test_bitcast_follows_layouts() -> None:
    source = Shape(F.dtype, (2, 3), layout=Layout((0, 1)))
    module = program(source, build=lambda b, x: b.add("bitcast", x, shape=array_shape("f32", 6)))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(evaluate(module, [x])[0], x.T.reshape(-1))


def test_sub_byte_bits() -> None:
    def build(b: Builder, x: Instruction) -> Instruction:
        nibbles = b.add("bitcast-convert", x, shape=array_shape("s4", 2, 2))
        return b.add("tuple", nibbles, b.add("bitcast-convert", nibbles, shape=array_shape("u8", 2)))

    nibbles, back = evaluate(program(array_shape("u8", 2), build=build), [np.array([0x1F, 0x80], np.uint8)])
    assert nibbles.astype(int).tolist() == [[-1, 1], [0, -8]]
    assert back.tolist() == [0x1F, 0x80]


def test_stochastic_convert() -> None:
    def build(b: Builder, x: Instruction, bits: Instruction) -> Instruction:
        return b.add("stochastic-convert", x, bits, shape=array_shape("s8", 4))

    module = program(array_shape("f32", 4), array_shape("u32", 4), build=build)
    x = np.array([1.25, 1.25, -1.25, 300], np.float32)
    bits = np.array([0, 1 << 31, 0, 0], np.uint32)
    assert evaluate(module, [x, bits])[0].tolist() == [2, 1, -2, 127]


def scan_body() -> Computation:
    b = Builder("running")
    x, c = b.parameter(array_shape("f32", 3)), b.parameter(array_shape("f32", 3))
    total = b.add("add", c, x)
    return b.build(b.add("tuple", b.add("multiply", c, x), total))


@pytest.mark.parametrize("backwards", [False, True])
def test_scan(backwards: bool) -> None:
    def build(b: Builder, x: Instruction, c: Instruction) -> Instruction:
        return b.add("scan", x, c, dimensions=(0,), to_apply=scan_body(), num_carries=1, is_reverse=backwards)

    module = program(array_shape("f32", 4, 3), array_shape("f32", 3), build=build)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    outputs, carry = evaluate(module, [x, np.zeros(3, np.float32)])
    ordered = x[::-1] if backwards else x
    before = np.cumsum(ordered, axis=0) - ordered
    expected = before * ordered
    np.testing.assert_array_equal(outputs, expected[::-1] if backwards else expected)
    np.testing.assert_array_equal(carry, x.sum(0))


def custom(target: str, *arrays: Any, shape: Shape | None = None) -> Any:
    def build(b: Builder) -> Instruction:
        operands = [b.add("constant", shape=Literal(a).shape, literal=Literal(a)) for a in arrays]
        return b.add("custom-call", *operands, shape=shape or operands[0].shape, custom_call_target=target)

    return evaluate(program(build=build), [])


def test_custom_calls() -> None:
    x = np.array([1.0, 2.0], np.float32)
    assert custom("Sharding", x)[0].tolist() == [1.0, 2.0]
    with pytest.raises(UnsupportedError, match="unknown custom call 'lapack_unheard_of'"):
        custom("lapack_unheard_of", x)
    with pytest.raises(UnsupportedError, match="manual computation"):
        custom("SPMDFullToShardShape", x, shape=array_shape("f32", 1))


def test_checks() -> None:
    x = np.array([1.0, np.nan, 0.0], np.float32)
    nothing = tuple_shape()
    for target in ("check.expect_eq", "check.expect_close", "check.expect_almost_eq"):
        assert custom(target, x, x, shape=nothing) == []
        with pytest.raises(RunError, match=rf"{target} is false at \[0\]: 2.0 is not 1.0"):
            custom(target, x + 1, x, shape=nothing)
    near = np.nextafter(np.nextafter(x, np.float32(9)), np.float32(9))
    assert custom("check.expect_close", near, x, shape=nothing) == []
    with pytest.raises(RunError):
        custom("check.expect_eq", near, x, shape=nothing)


def test_every_op_has_a_meaning() -> None:
    blank = [o for o in OPS if o != "parameter" and ROWS[o].local is None and ROWS[o].lockstep is None]
    assert not blank


def test_batch_norm() -> None:
    r = np.random.default_rng(0)
    x = r.standard_normal((4, 3, 5)).astype(np.float32)
    scale, offset = r.standard_normal(3).astype(np.float32), r.standard_normal(3).astype(np.float32)
    attrs: dict[str, Any] = {"epsilon": 0.01, "feature_index": 1}
    features = array_shape("f32", 3)
    big = array_shape("f32", 4, 3, 5)

    def forward(b: Builder, *p: Instruction) -> Instruction:
        return b.add("batch-norm-training", *p, **attrs)

    y, mean, variance = evaluate(program(big, features, features, build=forward), [x, scale, offset])
    np.testing.assert_allclose(mean, x.mean((0, 2)), rtol=1e-5)
    normal = (x - mean[:, None]) / np.sqrt(variance[:, None] + 0.01)
    np.testing.assert_allclose(y, normal * scale[:, None] + offset[:, None], rtol=1e-4, atol=1e-5)

    def same(b: Builder, *p: Instruction) -> Instruction:
        return b.add("batch-norm-inference", *p, **attrs)

    again = evaluate(program(big, *[features] * 4, build=same), [x, scale, offset, mean, variance])[0]
    np.testing.assert_allclose(again, y, rtol=1e-5, atol=1e-6)

    def backward(b: Builder, *p: Instruction) -> Instruction:
        return b.add("batch-norm-grad", *p, **attrs)

    g = r.standard_normal(x.shape).astype(np.float32)
    module = program(big, features, features, features, big, build=backward)
    dx, dscale, doffset = evaluate(module, [x, scale, mean, variance, g], float64=False)
    np.testing.assert_allclose(doffset, g.sum((0, 2)), rtol=1e-4)
    np.testing.assert_allclose(dscale, (g * normal).sum((0, 2)), rtol=1e-4, atol=1e-5)
    step = 1e-3 * r.standard_normal(x.shape)
    forward_module = program(big, features, features, build=forward)

    def loss(v: Any) -> float:
        return float(
            (
                evaluate(
                    forward_module,
                    [v.astype(np.float64), *(a.astype(np.float64) for a in (scale, offset))],
                    float64=True,
                )[0]
                * g
            ).sum()
        )

    slope = (loss(x + step) - loss(x - step)) / 2
    np.testing.assert_allclose((dx * step).sum(), slope, rtol=1e-3)
