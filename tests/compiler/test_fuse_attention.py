"""Attention as one kernel: which programs become it, what it moves, and that nothing changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shardc.compiler.lower.described import lower_for
from shardc.compiler.lower.fuse.fuse_attention import FuseAttention
from shardc.compiler.lower.lowered import KernelStep, leaf_steps, memory_analysis
from shardc.compiler.lower.schedule.step_work import work_of
from shardc.compiler.times.step_times import step_times
from shardc.costs.machines.machine import load_machine
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.ir import Module
from shardc.hlo.passes import run_pipeline
from shardc.hlo.text.printer import print_module
from shardc.hlo.text.reader import read_hlo
from tests.compiler.checking import CHECKED, SUM, assert_close, program, random_arguments

B, Q, K, D = 3, 32, 48, 4
SIZE = f"{B},{Q},{K}"
BATCHED = "lhs_batch_dims={0}, rhs_batch_dims={0}"

#: Queries times keys, softmax of the rows, times values. What stands in the middle is put in.
BEFORE = f"""
q = f32[{B},{Q},{D}] parameter(0)
k = f32[{B},{K},{D}] parameter(1)
v = f32[{B},{K},{D}] parameter(2)
s = f32[{SIZE}] dot(q, k), {BATCHED}, lhs_contracting_dims={{2}}, rhs_contracting_dims={{2}}
low = f32[] constant(-inf)
zero = f32[] constant(0)
m = f32[{B},{Q}] reduce(s, low), dimensions={{2}}, to_apply=max
mb = f32[{SIZE}] broadcast(m), dimensions={{0,1}}
c = f32[{SIZE}] subtract(s, mb)
e = f32[{SIZE}] exponential(c)
l = f32[{B},{Q}] reduce(e, zero), dimensions={{2}}, to_apply=sum
lb = f32[{SIZE}] broadcast(l), dimensions={{0,1}}
p = f32[{SIZE}] divide(e, lb)
"""
AFTER = f"o = f32[{B},{Q},{D}] dot(p, v), {BATCHED}, lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}\n"


def attention(middle: str = "", after: str = AFTER, root: str = "ROOT r = f32[3,32,4] negate(o)") -> Module:
    return program(BEFORE + middle + after + root, SUM)


def fused(module: Module) -> list[Any]:
    """The kernels that the pass makes; the program still gives the same."""
    after = run_pipeline(module, (FuseAttention(),), CHECKED)
    args = random_arguments(module)
    assert_close(evaluate(after, args), evaluate(module, args))
    return [i for i in after.entry if i.opcode == "fusion"]


def test_softmax_between_two_products() -> None:
    (kernel,) = fused(attention())
    assert [o.name for o in kernel.operands] == ["q", "k", "v"]
    assert kernel.shape.dims == (B, Q, D)


def test_what_is_made_of_the_result_alone_joins() -> None:
    half = f"h = bf16[{B},{Q},{D}] convert(o)\nROOT t = bf16[{B},{D},{Q}] transpose(h), dimensions={{0,2,1}}"
    (kernel,) = fused(attention(root=half))
    assert kernel.shape.dtype.name == "bf16"
    (other,) = fused(attention(root=f"x = f32[{B},{Q},{D}] parameter(3)\nROOT t = f32[{B},{Q},{D}] add(o, x)"))
    assert len(other.operands) == 3


def test_masks_are_made_inside() -> None:
    rows = f"i = s32[{SIZE}] iota(), iota_dimension=1\nj = s32[{SIZE}] iota(), iota_dimension=2\n"
    masked = rows + f"w = pred[{SIZE}] compare(i, j), direction=GE\nz = f32[{SIZE}] broadcast(zero), dimensions={{}}\n"
    masked += f"p2 = f32[{SIZE}] select(w, p, z)\n"
    (kernel,) = fused(attention(masked, AFTER.replace("dot(p,", "dot(p2,")))
    assert len(kernel.operands) == 3
    shared = f"bias = f32[{Q},{K}] parameter(3)\nbb = f32[{SIZE}] broadcast(bias), dimensions={{1,2}}\n"
    shared += f"p2 = f32[{SIZE}] add(p, bb)\n"
    (kernel,) = fused(attention(shared, AFTER.replace("dot(p,", "dot(p2,")))
    assert {o.name for o in kernel.operands} == {"q", "k", "v", "bias"}


BIAS = f"b = f32[{SIZE}] parameter(3)\np2 = f32[{SIZE}] add(p, b)\n"


@pytest.mark.parametrize(
    "module",
    [
        pytest.param(attention(root=f"ROOT r = (f32[{B},{Q},{D}], f32[{SIZE}]) tuple(o, p)"), id="asked for"),
        pytest.param(attention(after="", root=f"ROOT r = f32[{SIZE}] negate(p)"), id="never small again"),
        pytest.param(attention(BIAS, AFTER.replace("dot(p,", "dot(p2,")), id="as large a bias"),
    ],
)
def test_scores_that_are_in_memory_anyway_stay(module: Module) -> None:
    assert not fused(module)


def test_thick_matrices_stay() -> None:
    """Products as large as their operands are no scores."""
    text = print_module(attention()).replace(f",{D}]", ",32]")
    module = read_hlo(text)
    assert not fused(module)


jax = pytest.importorskip("jax")
jnp = jax.numpy
T, H = 256, 16


def _spelled(q: Any, k: Any, v: Any) -> Any:
    s = jnp.einsum("bqnh,bknh->bnqk", q, k).astype(jnp.float32) / H**0.5
    i = jnp.arange(T)
    p = jax.nn.softmax(jnp.where(i[:, None] >= i, s, -1e30), axis=-1).astype(q.dtype)
    return jnp.einsum("bnqk,bknh->bqnh", p, v)


def _normalised_late(q: Any, k: Any, v: Any) -> Any:
    s = jnp.einsum("bqnh,bknh->bnqk", q, k)
    e = jnp.exp(s - jax.lax.stop_gradient(s.max(-1, keepdims=True)))
    return jnp.einsum("bnqk,bknh->bqnh", e, v) / e.sum(-1).transpose(0, 2, 1)[..., None]


def _library(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


def _grouped(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.dot_product_attention(q, k[:, :, :2], v[:, :, :2])


def _own_gradient(q: Any, k: Any, v: Any) -> Any:
    """A user's attention with a backward pass of its own, which computes the weights again."""

    @jax.custom_vjp
    def f(q: Any, k: Any, v: Any) -> Any:
        return _spelled(q, k, v)

    def forward(q: Any, k: Any, v: Any) -> Any:
        return f(q, k, v), (q, k, v)

    def backward(saved: Any, g: Any) -> Any:
        return jax.vjp(_spelled, *saved)[1](g)

    f.defvjp(forward, backward)
    return f(q, k, v)


FORMS = {"spelled": _spelled, "late": _normalised_late, "library": _library, "grouped": _grouped, "own": _own_gradient}


def _module(f: Any, *, train: bool) -> Module:
    import shardc

    def loss(w: Any, q: Any, k: Any, v: Any) -> Any:
        return (jnp.tanh(f(q, k, v) @ w) ** 2).sum()

    def step(w: Any, q: Any, k: Any, v: Any) -> Any:
        return jax.grad(loss, argnums=(0, 1, 2, 3))(w, q, k, v) if train else loss(w, q, k, v)

    one = jax.ShapeDtypeStruct((1, T, 4, H), jnp.float32)
    module: Module = shardc.from_jax(step, jax.ShapeDtypeStruct((H, H), jnp.float32), one, one, one).module
    return module


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("train", [False, True])
def test_forms_that_jax_programs_take(name: str, train: bool) -> None:
    """Forward and backward pass are kernels without scores in memory, and give what the program gives."""
    module = _module(FORMS[name], train=train)
    lowered = lower_for(module, load_machine("h100-dgx"))
    kernels = [s for s in leaf_steps(lowered.steps) if isinstance(s, KernelStep)]
    attention = [s for s in kernels if s.instruction.name.startswith("fused_attention")]
    assert len(attention) == 1 + train
    scores = 4 * T * T * 4
    assert all(b.nbytes < scores / 4 for b in lowered.plan.placements)
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(p.shape.dims).astype(np.float32) for p in module.parameters]
    assert_close(evaluate(lowered.module, args), evaluate(module, args), 1e-4)


def test_bytes_and_operations_by_hand() -> None:
    """The forward kernel reads q, k, v and writes the result; two products of 4 heads. The backward one makes five:
    the scores again, gradients of weights, values, queries and keys."""
    lowered = lower_for(_module(_spelled, train=True), load_machine("tpu-v5p"))
    kernels = [s for s in leaf_steps(lowered.steps) if isinstance(s, KernelStep)]
    forward, backward = [s for s in kernels if s.instruction.name.startswith("fused_attention")]
    one, product = T * 4 * H * 4, 2 * 4 * T * T * H
    first, second = work_of(forward), work_of(backward)
    assert first.read == 3 * one
    rows = 4 * T * 4  # a number per row of scores
    assert first.written - one in (rows, 2 * rows, 3 * rows)
    assert [p.flops for p in first.products] == [product] * 2
    assert [p.flops for p in second.products] == [product] * 5
    assert 4 * one <= second.read <= 4 * one + 4 * rows
    assert second.written == 3 * one
    again = [m for m in backward.instruction.attrs["calls"] if m.opcode == "dot" and "remat" in m.metadata.op_name]
    assert len(again) == 1


def test_a_machine_without_such_kernels_keeps_scores() -> None:
    machine = load_machine("h100-dgx")
    plain = replace(machine, device=replace(machine.device, fused_attention=False))
    module = _module(_spelled, train=False)
    kept, gone = lower_for(module, plain), lower_for(module, machine)
    assert memory_analysis(kept)["peak_bytes"] > memory_analysis(gone)["peak_bytes"] + 3 * T * T * 4
    assert sum(t.seconds for t in step_times(kept, plain).values()) > sum(
        t.seconds for t in step_times(gone, machine).values()
    )
