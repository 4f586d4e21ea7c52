"""`shardc.jit` among JAX's transformations, contexts and arrays: what `jax.jit` gives on JAX's own CPU."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as JaxP
from plugin_environment import plugin_environment

import shardc
from shardc import Mesh, P
from shardc.hlo.errors import InputError

MESH = Mesh({"data": 2, "model": 2})
RNG = np.random.default_rng(7)
W, X = RNG.normal(size=(8, 6)).astype(np.float32), RNG.normal(size=(4, 8)).astype(np.float32)
BATCHES = RNG.normal(size=(3, 4, 8)).astype(np.float32)


def loss(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w).sum()


def constrained(w: Any, x: Any) -> Any:
    around = jax.sharding.get_abstract_mesh()
    hidden = x @ w if around.empty else jax.lax.with_sharding_constraint(x @ w, JaxP("data"))
    return jnp.tanh(hidden).sum()


#: What is made of a function, and called with W and X.
USES: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "call": lambda f: f,
    "grad": jax.grad,
    "value and grad": lambda f: jax.value_and_grad(f, argnums=(0, 1)),
    "hessian row": lambda f: lambda w, x: jax.jvp(jax.grad(f), (w, x), (w, x))[1],
    "vmap": lambda f: lambda w, x: jax.vmap(f, (None, 0))(w, BATCHES),
    "grad of vmap": lambda f: jax.grad(lambda w, x: jax.vmap(f, (None, 0))(w, BATCHES).sum()),
    "vmap of grad": lambda f: lambda w, x: jax.vmap(jax.grad(f), (None, 0))(w, BATCHES),
    "jit around": lambda f: jax.jit(lambda w, x: f(w, x) * 2 + x.sum()),
    "jit of grad": lambda f: jax.jit(jax.grad(f)),
    "scan": lambda f: lambda w, x: jax.lax.scan(lambda c, b: (c * 0.9, f(c, b)), w, BATCHES),
    "jit of scan": lambda f: jax.jit(lambda w, x: jax.lax.scan(lambda c, b: (c * 0.9, f(c, b)), w, BATCHES)),
    "cond": lambda f: lambda w, x: jax.lax.cond(x[0, 0] > 0, f, lambda w, x: x.sum(), w, x),
    "checkpoint": lambda f: jax.grad(jax.checkpoint(f)),
    "eval_shape": lambda f: lambda w, x: jnp.zeros(jax.eval_shape(f, w, x).shape),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "one device": {},
    "mesh": {"mesh": MESH},
    "shardings": {"mesh": MESH, "in_shardings": (P(None, "model"), P("data")), "out_shardings": P()},
}


def same(got: Any, want: Any) -> None:
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert isinstance(g, jax.Array)
        assert (g.dtype, g.shape, g.weak_type) == (w.dtype, w.shape, getattr(w, "weak_type", False))
        np.testing.assert_allclose(g, w, rtol=2e-5, atol=1e-5)


def lies_on_ours(tree: Any) -> bool:
    return all(d.device_kind.startswith("shardc") for x in jax.tree.leaves(tree) for d in x.devices())


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("use", USES)
def test_it_composes(use: str, options: str) -> None:
    for function in (loss, constrained):
        got = USES[use](shardc.jit(function, **OPTIONS[options]))(W, X)
        same(got, USES[use](jax.jit(loss))(W, X))
        assert lies_on_ours(got) or use in ("eval_shape", "cond")


def test_jit_inside() -> None:
    inner = jax.jit(lambda w, x: x @ w)
    same(shardc.jit(lambda w, x: inner(w, x).sum(), mesh=MESH, in_shardings=(None, P("data")))(W, X), (X @ W).sum())
    ours = shardc.jit(lambda w, x: x @ w)
    same(shardc.jit(lambda w, x: ours(w, x).sum(), mesh=MESH, in_shardings=(None, P("data")))(W, X), (X @ W).sum())


@pytest.mark.parametrize("options", OPTIONS)
def test_results_go_into_jax_and_back(options: str) -> None:
    ours, theirs = shardc.jit(loss, **OPTIONS[options]), jax.jit(loss)
    mine = ours(jnp.asarray(W), jnp.asarray(X))
    same(jnp.sin(mine) + mine, jnp.sin(theirs(W, X)) + theirs(W, X))
    same(ours(W * mine, X), theirs(W * theirs(W, X), X))
    assert float(jax.device_put(mine, jax.devices("cpu")[0])) == pytest.approx(float(theirs(W, X)), rel=1e-5)


@pytest.mark.parametrize("options", OPTIONS)
def test_arrays_that_are_committed_elsewhere_are_moved(options: str) -> None:
    here = jax.devices("cpu")[0]
    w, x = jax.device_put(W, here), jax.device_put(X, NamedSharding(jax.make_mesh((1,), ("d",)), JaxP()))
    got = shardc.jit(loss, **OPTIONS[options])(w, x)
    same(got, loss(W, X))
    assert lies_on_ours(got)


def test_arrays_of_another_mesh_of_ours_are_moved() -> None:
    rows = shardc.jit(lambda x: x * 1, mesh=Mesh({"d": 2}), in_shardings=P("d"), out_shardings=P("d"))(X)
    for options in ({"mesh": MESH}, {"mesh": MESH, "in_shardings": (None, P(None, "model"))}):
        same(shardc.jit(loss, **options)(W, rows), loss(W, X))


def test_shardings_of_arguments_are_kept() -> None:
    split = shardc.jit(lambda w: w * 1, mesh=MESH, in_shardings=P("model"), out_shardings=P("model"))(W)
    assert split.sharding.spec == JaxP("model")
    same_way = shardc.jit(lambda w: w * 2, mesh=MESH)(split)
    assert same_way.sharding.is_equivalent_to(split.sharding, 2)


class Model:
    """Methods that are compiled, with and without options."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    @partial(shardc.jit, static_argnums=0)
    def scaled(self, x: Any) -> Any:
        return x * self.scale

    @shardc.jit(mesh=MESH, static_argnames="self", in_shardings=P("data"))
    def split(self, x: Any, *, twice: bool = False) -> Any:
        """Some sum."""
        return x * self.scale + 1


def test_methods() -> None:
    one, two = Model(2.0), Model(3.0)
    for model in (one, two, one):
        same(model.scaled(X), X * np.float32(model.scale))
        same(model.split(X), X * np.float32(model.scale) + 1)
    assert Model.split.__doc__ == "Some sum."
    same(Model.scaled(one, X), X * 2)


@pytest.mark.parametrize("mode", ["Auto", "Explicit"])
@pytest.mark.parametrize("around", [True, False])
def test_meshes_of_jax(mode: str, around: bool) -> None:
    """A mesh over no devices, given or around the call."""
    types = (AxisType[mode],) * 2
    mesh = jax.sharding.AbstractMesh((2, 2), ("data", "model"), axis_types=types)

    def f(w: Any, x: Any) -> Any:
        assert jax.sharding.get_abstract_mesh().axis_types == types
        if mode == "Explicit":
            return jax.sharding.reshard(x, JaxP("data")) @ w
        return jax.lax.with_sharding_constraint(x, JaxP("data")) @ w

    if around:
        concrete = shardc.jit(lambda x: x, mesh=mesh)(X).sharding.mesh
        with jax.set_mesh(concrete):
            got = shardc.jit(f)(W, X)
    else:
        got = shardc.jit(f, mesh=mesh)(W, X)
    same(got, X @ W)
    assert got.sharding.spec[0] == "data"


def test_shard_map_with_a_concrete_mesh_beside_a_mesh() -> None:
    concrete = shardc.jit(lambda x: x, mesh=MESH)(X).sharding.mesh

    @partial(jax.shard_map, mesh=concrete, in_specs=(JaxP(), JaxP("data")), out_specs=JaxP())
    def mapped(w: Any, x: Any) -> Any:
        return jax.lax.psum(jnp.tanh(x @ w).sum(), "data")

    for given in (MESH, concrete, MESH.to_jax()):
        same(shardc.jit(mapped, mesh=given)(W, X), loss(W, X))


@pytest.mark.parametrize("given", [None, P("data")], ids=["no shardings", "shardings"])
@pytest.mark.parametrize("size", [2, 8])
@pytest.mark.parametrize("form", ["constraint", "shard_map"])
def test_a_mesh_of_another_size_inside(form: str, size: int, given: P | None) -> None:
    """JAX takes a mesh over no devices of any size, and XLA ends the process on some of the shardings it gets back."""
    inner = jax.sharding.AbstractMesh((size,), ("data",), axis_types=(AxisType.Auto,))

    def f(x: Any) -> Any:
        if form == "constraint":
            return jax.lax.with_sharding_constraint(x, NamedSharding(inner, JaxP("data"))) * 2
        return jax.shard_map(lambda y: 2 * y, mesh=inner, in_specs=JaxP("data"), out_specs=JaxP("data"))(x)

    text = f"shards values over data={size}, but is compiled for 4 devices"
    with pytest.raises(jax.errors.JaxRuntimeError, match=text):
        shardc.jit(f, mesh=Mesh({"data": 4}), in_shardings=given)(np.arange(8.0, dtype=np.float32))


def test_stages_of_jax() -> None:
    step = shardc.jit(loss, mesh=MESH, in_shardings=(P(None, "model"), P("data")), donate_argnums=1)
    shapes = (jax.ShapeDtypeStruct(W.shape, W.dtype), jax.ShapeDtypeStruct(X.shape, X.dtype))
    traced = step.trace(*shapes)
    assert traced.out_info.shape == step.eval_shape(*shapes).shape == ()
    lowered = step.lower(*shapes)
    assert "stablehlo" in lowered.as_text() and lowered.args_info[0][1].donated
    compiled = lowered.compile()
    same(compiled(W, X), loss(W, X))
    assert compiled.cost_analysis()["flops"] > 0


def test_caches_are_cleared() -> None:
    times = []

    def f(x: Any) -> Any:
        times.append(1)
        return x + 1

    jitted = shardc.jit(f, mesh=MESH)
    for _ in range(3):
        jitted(X)
    assert len(times) == 1
    jitted.clear_cache()
    same(jitted(X), X + 1)
    assert len(times) == 2


def test_options_of_jax_are_taken() -> None:
    step = shardc.jit(lambda x, y: x + 1, keep_unused=True, inline=True, mesh=MESH)
    same(step(X, W), X + 1)
    assert len(step.lower(X, W).compile().input_shardings[0]) == 2
    with pytest.raises(InputError, match=r"shardc\.jit has no option 'nonsense'"):
        shardc.jit(loss, nonsense=1)


def test_meshes_of_other_devices_inside_of_a_function(tmp_path: Path) -> None:
    """A program written for `jax.jit` makes them of the devices that JAX has there: it runs on ours all the same."""
    program = Path(__file__).parent / "inner_meshes_program.py"
    environment = plugin_environment("cpu", tmp_path, 4)
    done = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "done\n", done.stderr
