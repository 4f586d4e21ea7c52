"""Gathers and scatters of one element per row, as comparisons with the index, against the evaluator."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc.compiler.lower.expand.select_scatters import SelectScatters
from shardc.compiler.lower.lowered import KernelStep, leaf_steps
from shardc.compiler.lower.pipeline import lower
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.ir import Module
from tests.compiler.checking import SUM, check, program

#: In range, at the ends, and outside on both sides.
INDICES = np.array([0, 5, -1, 6, 3, -7, 2, 100], np.int32)
SET = "set {\nset.a = f32[] parameter(0)\nROOT set.b = f32[] parameter(1)\n}\n"


def scatter(reducer: str, ground: str = "0.5", dtype: str = "f32") -> Module:
    return program(
        f"""i = s32[8] parameter(0)
u = {dtype}[8] parameter(1)
g = {dtype}[] constant({ground})
x = {dtype}[8,6] broadcast(g), dimensions={{}}
k = s32[8,1] reshape(i)
ROOT s = {dtype}[8,6] scatter(x, k, u), update_window_dims={{}}, inserted_window_dims={{1}}, input_batching_dims={{0}},
 scatter_indices_batching_dims={{0}}, scatter_dims_to_operand_dims={{1}}, index_vector_dim=1, to_apply={reducer}
""",
        SUM + SET,
    )


@pytest.mark.parametrize("reducer", ["sum", "max", "set"])
def test_a_scatter_of_one_per_row_is_a_selection(reducer: str) -> None:
    module = scatter(reducer)
    after = SelectScatters().run(module)
    assert "scatter" not in {i.opcode for i in after.entry}
    arguments = [INDICES, np.array([1, -2, 3, np.nan, np.inf, -0.0, 1e-39, 8], np.float32)]
    np.testing.assert_array_equal(evaluate(after, arguments), evaluate(module, arguments))
    check(module, arguments)


def test_a_scatter_of_several_per_row_stays() -> None:
    module = program(
        """i = s32[8,2] parameter(0)
u = f32[8,2] parameter(1)
g = f32[] constant(0)
x = f32[8,6] broadcast(g), dimensions={}
k = s32[8,2,1] reshape(i)
ROOT s = f32[8,6] scatter(x, k, u), update_window_dims={}, inserted_window_dims={1}, input_batching_dims={0},
 scatter_indices_batching_dims={0}, scatter_dims_to_operand_dims={1}, index_vector_dim=2, to_apply=sum
"""
    )
    assert SelectScatters().run(module) is module


def picked(x: jax.Array, i: jax.Array, mode: str) -> jax.Array:
    return jnp.take_along_axis(jax.nn.log_softmax(x), i[:, None], axis=-1, mode=mode)


@pytest.mark.parametrize("mode", ["clip", "fill", "promise_in_bounds"])
def test_the_loss_of_a_classifier_is_one_kernel(mode: str) -> None:
    def f(x: jax.Array, i: jax.Array) -> jax.Array:
        return picked(x, i, mode)

    shapes = jax.ShapeDtypeStruct((8, 6), np.float32), jax.ShapeDtypeStruct((8,), np.int32)
    module = shardc.from_jax(jax.jit(f), *shapes).module
    assert [s.instruction.opcode for s in leaf_steps(lower(module).steps) if isinstance(s, KernelStep)] == ["fusion"]
    x = np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32)
    x[1, 2], x[4, 3], x[7, 0] = np.inf, -np.inf, np.nan
    check(module, [x, INDICES])


def test_its_gradient_makes_no_zeros() -> None:
    def f(x: jax.Array, i: jax.Array) -> object:
        return jax.value_and_grad(lambda x: -picked(x, i, "clip").mean())(x)

    shapes = jax.ShapeDtypeStruct((64, 600), np.float32), jax.ShapeDtypeStruct((64,), np.int32)
    module = shardc.from_jax(jax.jit(f), *shapes).module
    steps = [s for s in leaf_steps(lower(module).steps) if isinstance(s, KernelStep)]
    big = [b for s in steps for b in s.results if b.nbytes >= 64 * 600]
    assert len(big) == 1  # the gradient itself
    x = np.random.default_rng(0).standard_normal((64, 600)).astype(np.float32)
    check(module, [x, np.arange(64, dtype=np.int32) * 9])
