"""Manual computations from JAX's shard_map: partitioned and run, they give what the unpartitioned program gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from partition_support import integers, run_partitioned, with_slow_arithmetic

import shardc
from shardc.hlo.evaluate import evaluate
from shardc.partitioner.equivalence import agree
from shardc.partitioner.options import PartitionOptions

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax
P = jax.sharding.PartitionSpec
shard_map = getattr(jax, "shard_map", None)
pytestmark = pytest.mark.skipif(shard_map is None, reason="this JAX has no jax.shard_map")

AUTO = jax.sharding.AxisType.Auto
MESH = jax.sharding.AbstractMesh((4, 2), ("a", "b"), axis_types=(AUTO, AUTO))
RING = [(i, (i + 1) % 4) for i in range(4)]


def position(x: Any) -> Any:
    return x * (lax.axis_index("a") + 1)


def reduced(x: Any) -> Any:
    return lax.psum(x, "a") + lax.pmax(x, "a") * x


def gathered(x: Any) -> Any:
    return x + lax.all_gather(x, "a", tiled=True).sum(axis=0, keepdims=True)


def exchanged(x: Any) -> Any:
    return x + lax.all_to_all(jnp.tile(x, (2, 1)), "a", 0, 1, tiled=True).sum()


def shifted(x: Any) -> Any:
    return lax.ppermute(x, "a", RING) * x


def scattered(x: Any) -> Any:
    return lax.psum_scatter(jnp.tile(x, (4, 1)), "a", tiled=True) * x


def ring(x: Any) -> Any:
    """Every position meets the part of every other, as in ring attention."""

    def step(carry: Any, _: Any) -> Any:
        part, total = carry
        return (lax.ppermute(part, "a", RING), total + jnp.tanh(x @ part.T) @ part), part.sum()

    (_, total), sums = lax.scan(step, (x, jnp.zeros_like(x)), None, length=4)
    return total + sums.sum()


def pipeline(x: Any) -> Any:
    """Stages pass on what they have made; only the last one's counts."""
    stage = lax.axis_index("a")

    def step(i: Any, state: Any) -> Any:
        made = jnp.where(stage == 0, x, state) * (stage + 1)
        return lax.ppermute(made, "a", RING)

    return lax.fori_loop(0, 4, step, jnp.zeros_like(x))


def matmul(x: Any) -> Any:
    """A product whose right side goes round while parts of it are multiplied."""
    size, me = x.shape[0], lax.axis_index("a")

    def step(i: Any, carry: Any) -> Any:
        part, total = carry
        block = lax.dynamic_slice_in_dim(x, ((me - i) % 4) * (x.shape[1] // 4), x.shape[1] // 4, 1)
        return lax.ppermute(part, "a", RING), total + block @ part[: block.shape[1]]

    return lax.fori_loop(0, 4, step, (x, jnp.zeros((size, x.shape[1]))))[1]


FUNCTIONS = (position, reduced, gathered, exchanged, shifted, scattered, ring, pipeline, matmul)


def same(function: Callable[..., Any], *shapes: tuple[int, ...], spec: Any) -> Any:
    import shardc

    sharding = jax.sharding.NamedSharding(MESH, spec)
    arrays = [jax.ShapeDtypeStruct(s, np.float32) for s in shapes]
    propagated = shardc.from_jax(jax.jit(function, in_shardings=(sharding,) * len(shapes)), *arrays).propagate()
    rng = np.random.default_rng(0)
    args = [integers(rng, p.shape) for p in propagated.module.parameters]
    want = evaluate(propagated.module, args)
    reference = evaluate(propagated.module, args, float64=True)
    local, got = run_partitioned(propagated.module, args)
    for g, w, r in zip(got, want, reference, strict=True):
        assert agree(g, w, r)
    for g, w, r in zip(jax.tree.leaves(propagated.partition().compile("cpu")(*args)), want, reference, strict=True):
        assert agree(np.asarray(shardc.gather(g)), w, r)
    return local


@pytest.mark.parametrize("grad", [False, True], ids=["value", "grad"])
@pytest.mark.parametrize("axes", ["a", "ab"], ids=["partly", "fully"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_functions(function: Callable[[Any], Any], axes: str, grad: bool) -> None:
    if grad and function is reduced:
        pytest.skip("JAX has no gradient of pmax")
    spec = P("a", *axes[1:])
    mapped = shard_map(function, mesh=MESH, in_specs=(spec,), out_specs=spec, axis_names=set(axes), check_vma=False)

    def loss(x: Any) -> Any:
        return jnp.sin(mapped(x)).sum()

    same(jax.grad(loss) if grad else mapped, (8, 8), spec=P("a", "b"))


@pytest.mark.parametrize("axes", ["a", "ab"], ids=["partly", "fully"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_plans_do_not_split_over_manual_axes(function: Callable[[Any], Any], axes: str) -> None:
    """Where arithmetic takes all the time, a plan splits whatever it may; inside, devices hold different values."""
    spec = P("a", *axes[1:])
    mapped = shard_map(
        lambda x: jnp.tanh(function(jnp.tanh(x))),
        mesh=MESH,
        in_specs=(spec,),
        out_specs=spec,
        axis_names=set(axes),
        check_vma=False,
    )
    arguments = jax.ShapeDtypeStruct((8, 8), np.float32, sharding=jax.sharding.NamedSharding(MESH, P("a", "b")))
    module = shardc.from_jax(jax.jit(mapped), arguments).propagate().module
    x = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    options = PartitionOptions(plan="global", memory=1e9)
    _, (got,) = run_partitioned(module, [x], with_slow_arithmetic(), options)
    np.testing.assert_allclose(got, evaluate(module, [x])[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axes", ["a", "ab"], ids=["partly", "fully"])
def test_the_text_names_the_manual_axes(axes: str, tmp_path: Path) -> None:
    spec = P("a", *axes[1:])
    mapped = shard_map(ring, mesh=MESH, in_specs=(spec,), out_specs=spec, axis_names=set(axes), check_vma=False)
    arguments = jax.ShapeDtypeStruct((8, 8), np.float32, sharding=jax.sharding.NamedSharding(MESH, P("a", "b")))
    program = shardc.from_jax(jax.jit(mapped), arguments)
    x = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    (want,) = evaluate(program.module, [x])
    for stage in (program, program.propagate()):
        path = tmp_path / "stage.hlo"
        path.write_text(stage.as_text())
        got = shardc.gather(shardc.load(path).compile()(x))
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_free_axes_split_what_is_inside() -> None:
    """The columns stay split along ``b`` all the way: the ring is the only communication."""
    mapped = shard_map(shifted, mesh=MESH, in_specs=(P("a"),), out_specs=P("a"), axis_names={"a"})
    local = same(lambda x: mapped(x * 2), (8, 8), spec=P("a", "b"))
    (permute,) = [i for i in local.instructions() if i.opcode.startswith(("all-", "collective-", "reduce-scatter"))]
    assert permute.opcode == "collective-permute"
    assert permute.shape.dims == (2, 4)
    assert type(permute.attrs["source_target_pairs"]).__name__ == "AxisPairs"


def test_uneven_free_axes() -> None:
    mapped = shard_map(scattered, mesh=MESH, in_specs=(P("a"),), out_specs=P("a"), axis_names={"a"}, check_vma=False)
    same(lambda x: mapped(x) + x, (8, 7), spec=P("a", None))
    same(lambda x: mapped(x).T @ x, (12, 6), spec=P("a", "b"))


def test_nested() -> None:
    inner = shard_map(
        lambda x: lax.psum(x, "b") * x, in_specs=(P(None, "b"),), out_specs=P(None, "b"), axis_names={"b"}
    )
    outer = shard_map(
        lambda x: lax.ppermute(inner(x), "a", RING), mesh=MESH, in_specs=(P("a"),), out_specs=P("a"), axis_names={"a"}
    )
    same(outer, (8, 6), spec=P("a", "b"))


GSPMD = """HloModule m, num_partitions=4

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY main {
  x = f32[8,6] parameter(0), sharding={devices=[2,2]<=[4]}
  whole = f32[8,6] custom-call(x), custom_call_target="Sharding", sharding={devices=[2,2]<=[4]}
  mine = f32[4,6] custom-call(whole), custom_call_target="SPMDFullToShardShape",
    sharding={devices=[1,2,2]<=[2,2]T(1,0) last_tile_dims={manual}}
  all = f32[4,6] all-reduce(mine), to_apply=sum, channel_id=1, use_global_device_ids=true, replica_groups={{0,2},{1,3}}
  out = f32[4,6] multiply(all, mine), sharding={devices=[1,2,2]<=[2,2]T(1,0) last_tile_dims={manual}}
  ROOT back = f32[8,6] custom-call(out), custom_call_target="SPMDShardToFullShape", sharding={devices=[2,2]<=[4]}
}
"""


def test_the_border_as_gspmd_writes_it() -> None:
    from shardc.hlo.text.reader import read_hlo
    from shardc.sharding.propagate import propagate

    x = np.arange(48, dtype=np.float32).reshape(8, 6)
    whole = propagate(read_hlo(GSPMD)).module
    local, (result,) = run_partitioned(whole, [x])
    total = x[:4] + x[4:]
    np.testing.assert_array_equal(evaluate(whole, [x])[0], np.concatenate([total, total]) * x)
    np.testing.assert_array_equal(result, np.concatenate([total, total]) * x)
    (reduce,) = [i for i in local.instructions() if i.opcode == "all-reduce"]
    assert reduce.shape.dims == (4, 3)


def test_a_manual_computation_may_take_nothing() -> None:
    """Only where each position is tells its part of the result."""
    import shardc

    inside = shard_map(lambda: lax.axis_index("a")[None] * 3 + 1, mesh=MESH, in_specs=(), out_specs=P("a"))
    module = shardc.from_jax(jax.jit(lambda: inside() + 1)).propagate().module
    _, (got,) = run_partitioned(module, [])
    np.testing.assert_array_equal(got, np.arange(4) * 3 + 2)
    np.testing.assert_array_equal(evaluate(module, [])[0], np.arange(4) * 3 + 2)


def test_collectives_of_one_device_are_what_it_has() -> None:
    """Over a mesh of one device JAX leaves only the body of a manual computation, with its collectives."""
    mesh = jax.sharding.AbstractMesh((1,), ("a",), axis_types=(AUTO,))

    def body(x: Any) -> Any:
        shifted = lax.ppermute(lax.psum(x, "a"), "a", [(0, 0)])
        exchanged = lax.all_to_all(x, "a", 0, 0, tiled=True)
        return shifted + lax.all_gather(x, "a", tiled=True) + lax.psum_scatter(x, "a", tiled=True) * exchanged

    function = shard_map(body, mesh=mesh, in_specs=P("a"), out_specs=P("a"), check_vma=False)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    compiled = shardc.from_jax(jax.jit(function), x).propagate().partition().compile()
    np.testing.assert_array_equal(np.asarray(compiled(x)), 2 * x + x * x)


PARTIAL = """
module @partial {
  sdy.mesh @mesh = <["a"=4, "b"=2]>
  func.func public @main(%x: tensor<8x2xf32>) -> (tensor<8x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {}]>}) {
    %0 = sdy.sharding_constraint %x <@mesh, [{}, {}], unreduced={"a"}> : tensor<8x2xf32>
    %1 = sdy.manual_computation(%0) in_shardings=[<@mesh, [{}, {}], unreduced={"a"}>]
        out_shardings=[<@mesh, [{}, {}], unreduced={"a"}>] manual_axes={"a"} (%y: tensor<8x2xf32>) {
      %2 = stablehlo.add %y, %y : tensor<8x2xf32>
      sdy.return %2 : tensor<8x2xf32>
    } : (tensor<8x2xf32>) -> tensor<8x2xf32>
    %3 = sdy.sharding_constraint %1 <@mesh, [{"a"}, {}]> : tensor<8x2xf32>
    return %3 : tensor<8x2xf32>
  }
}
"""


def test_partial_values_cross_the_border_as_they_are(tmp_path: Path) -> None:
    """What is unreduced over a manual axis is summed neither before nor inside, and once behind."""
    file = tmp_path / "partial.mlir"
    file.write_text(PARTIAL, encoding="utf-8")
    partitioned = shardc.load(file).propagate().partition()
    x = np.arange(16, dtype=np.float32).reshape(8, 2)
    np.testing.assert_array_equal(np.asarray(partitioned.compile()(x)), 2 * x)
    assert "all-reduce" not in partitioned.as_text() and "reduce-scatter" in partitioned.as_text()
