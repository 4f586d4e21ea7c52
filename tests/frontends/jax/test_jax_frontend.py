"""JAX functions and stages as programs: the module, and what belongs to which argument and result."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from shardc.frontends.jax import frontend
from shardc.frontends.jax.frontend import JaxProgram, exported_from_bytes, lower_function, module_from_jax
from shardc.hlo.errors import AnnotationError, EnvironmentProblem, InputError, UnsupportedError
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.callbacks import calls_of, is_callback, title_of
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import Sharding
from shardc.sharding.notations.partition_spec import P

STATE = {"w": np.arange(8, dtype=np.float32).reshape(4, 2), "unused": np.ones(3, np.float32)}


def step(state: Any, skipped: Any, key: Any, rate: Any) -> Any:
    first, second = jax.random.split(key)
    noise = jax.random.normal(first, state["w"].shape)
    return {"w": state["w"] - rate * noise, "n": 3}, second


def call(program: JaxProgram, *args: Any, **kwargs: Any) -> Any:
    """The program through our evaluator, pytrees in and out."""
    return program.unflatten(evaluate(program.module, program.flatten(args, kwargs)))


def assert_same(ours: Any, theirs: Any) -> None:
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        if isinstance(b, jax.Array) and jax.dtypes.issubdtype(b.dtype, jax.dtypes.prng_key):
            assert a.dtype == b.dtype
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-6)


def stages() -> list[Any]:
    args = (STATE, 1.0, jax.random.key(0), 0.5)
    jitted = jax.jit(step)
    traced = jitted.trace(*args)
    return [
        functools.partial(module_from_jax, step, *args),
        functools.partial(module_from_jax, jitted, *args),
        functools.partial(module_from_jax, traced),
        functools.partial(module_from_jax, traced.lower()),
        functools.partial(module_from_jax, export.export(jitted, platforms=["cpu"])(*args)),
    ]


@pytest.mark.parametrize("which", range(5), ids=["function", "jitted", "traced", "lowered", "exported"])
def test_every_stage_of_jax(which: int) -> None:
    program = stages()[which]()
    assert program.kept == (1, 3, 4)
    assert len(program.module.parameters) == 3
    args = (STATE, 1.0, jax.random.key(7), 0.25)
    assert_same(call(program, *args), step(*args))


def test_names_are_those_of_the_function() -> None:
    program = stages()[0]()
    assert program.module.arg_names == ("state['w']", "key", "rate")
    assert program.module.result_names == ("result[0]['n']", "result[0]['w']", "result[1]")


def test_an_exported_program_goes_through_bytes() -> None:
    pytest.importorskip("flatbuffers")
    exported = export.export(jax.jit(lambda x, y: x * y + 1), platforms=["cpu"])(np.ones(3, np.float32), 2.0)
    program = exported_from_bytes(bytes(exported.serialize()))
    np.testing.assert_array_equal(call(program, np.arange(3, dtype=np.float32), 3.0), [1, 4, 7])


def test_bytes_that_are_no_export() -> None:
    with pytest.raises((InputError, EnvironmentProblem)):
        exported_from_bytes(b"\x00\x01\x02ML\xefR", "x.bin")


def test_static_arguments_and_keywords() -> None:
    def power(x: Any, n: int, *, scale: Any, flip: bool) -> Any:
        y = scale * x**n
        return y[::-1] if flip else y

    jitted = jax.jit(power, static_argnums=1, static_argnames="flip")
    x = np.arange(3, dtype=np.float32)
    program = module_from_jax(jitted, x, 2, scale=2.0, flip=True)
    assert_same(call(program, x, 2, scale=3.0, flip=True), power(x, 2, scale=3.0, flip=True))
    assert_same(call(program, x, scale=3.0), power(x, 2, scale=3.0, flip=True))


def test_weak_types_and_exact_dtypes() -> None:
    program = module_from_jax(lambda x, s: x * s, np.ones(3, np.float32), 2)
    np.testing.assert_array_equal(call(program, np.ones(3, np.float32), 5), [5, 5, 5])
    np.testing.assert_array_equal(call(program, np.ones(3, np.float64), np.int32(5)), [5, 5, 5])
    np.testing.assert_array_equal(call(program, jnp.ones(3), jnp.int32(5)), [5, 5, 5])
    for bad in ((np.ones(3, np.int32), 1), (np.ones(3, np.float16), 1), (np.ones(3, np.float32), 1.5)):
        with pytest.raises(InputError):
            program.flatten(bad)


def test_wrong_arguments_are_named() -> None:
    program = stages()[0]()
    key = jax.random.key(0)
    with pytest.raises(InputError, match=r"the program takes 4: .*key, rate"):
        program.flatten((STATE, 1.0, key))
    with pytest.raises(InputError, match=r"shape \(4, 3\)") as caught:
        program.flatten(({**STATE, "w": np.ones((4, 3), np.float32)}, 1.0, key, 0.5))
    assert caught.value.where == "state['w']"
    with pytest.raises(InputError, match="not an array"):
        program.flatten((STATE, 1.0, key, "fast"))
    with pytest.raises(InputError, match="but got 2"):
        program.unflatten([1, 2])


def test_arrays_of_others_are_passed_through() -> None:
    class Elsewhere:
        shape, dtype = (3,), np.dtype(np.float32)

    value = Elsewhere()
    assert module_from_jax(lambda x: x + 1, np.ones(3, np.float32)).flatten((value,))[0] is value


def test_shardings_of_arguments_are_kept() -> None:
    mesh = AbstractMesh((16, 2), ("data", "model"), axis_types=(AxisType.Auto, AxisType.Auto))
    x = jax.ShapeDtypeStruct((32, 4), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec("data", None)))
    program = module_from_jax(jnp.sin, x)
    assert program.module.mesh == Mesh({"data": 16, "model": 2})
    assert program.module.parameters[0].sharding == Sharding.of(program.module.mesh, "data", None)


def test_shardings_over_a_concrete_mesh() -> None:
    mesh = jax.make_mesh((1, 1), ("data", "model"), devices=jax.devices()[:1])
    x = jax.device_put(np.ones((4, 4), np.float32), NamedSharding(mesh, PartitionSpec("data")))
    program = module_from_jax(lambda x: x * 2, x)
    assert program.module.mesh == Mesh({"data": 1, "model": 1})
    assert program.module.parameters[0].sharding == Sharding.of(program.module.mesh, "data", None)


MESHES = [
    Mesh({"data": 4, "model": 2}),
    AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto, AxisType.Auto)),
    Mesh({"data": 4, "model": 2}).to_jax(),
]


@pytest.mark.parametrize("mesh", MESHES, ids=["ours", "jax", "to_jax"])
@pytest.mark.parametrize("spec", [P, PartitionSpec], ids=["our P", "their P"])
def test_lower_function_with_prefixes(mesh: Any, spec: Any) -> None:
    def fn(state: Any, x: Any, n: int) -> Any:
        y = jax.lax.with_sharding_constraint(x @ state["w"], PartitionSpec("data", "model"))
        return {"w": state["w"] * n, "m": state["m"]}, y.sum()

    state = {"w": np.ones((8, 4), np.float32), "m": np.ones((8, 4), np.float32)}
    program = lower_function(
        fn,
        mesh,
        in_shardings=(spec(None, "model"), spec("data")),
        out_shardings=(spec(None, "model"), None),
        donate_argnums=0,
        static_argnums=2,
        args=(state, np.ones((12, 8), np.float32), 3),
    )
    ours = Mesh({"data": 4, "model": 2})
    split = Sharding.of(ours, None, "model")
    assert [p.sharding for p in program.module.parameters] == [split, split, Sharding.of(ours, "data", None)]
    root = program.module.entry.root.sharding
    assert root == (split, split, None)
    assert program.donated == (0, 1)
    assert {a.parameter for a in program.module.aliases} | set(program.module.donors) == {0, 1}
    values = {**state, "w": np.full((8, 4), 2, np.float32)}
    assert_same(call(program, values, np.ones((12, 8), np.float32), 3)[1], np.float32(12 * 4 * 8 * 2))


DEVICE = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",)).abstract_mesh.abstract_device
#: The same axes by objects that JAX takes for different meshes, and shard_map refuses beside each other.
OBJECTS = {
    "ours": Mesh({"data": 4, "model": 2}),
    "abstract": MESHES[1],
    "of devices": AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2, abstract_device=DEVICE),
}


@pytest.mark.parametrize("around", OBJECTS)
@pytest.mark.parametrize("inside", ["abstract", "of devices", "none"])
@pytest.mark.parametrize("shardings", [None, (P("data", "model"),)])
def test_shard_map_over_another_object_of_the_same_axes(around: str, inside: str, shardings: Any) -> None:
    over = {} if inside == "none" else {"mesh": OBJECTS[inside]}

    def fn(x: Any) -> Any:
        specs = {"in_specs": PartitionSpec("data", "model"), "out_specs": PartitionSpec(None, "model")}
        return jax.shard_map(lambda a: jax.lax.psum(a * 2, "data"), **over, **specs)(x) + 1

    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    program = lower_function(fn, OBJECTS[around], in_shardings=shardings, args=(x,))
    assert program.module.mesh == OBJECTS["ours"]
    assert_same(call(program, x), x.reshape(4, 2, 8).sum(0) * 2 + 1)


@pytest.mark.parametrize("axis", [AxisType.Auto, AxisType.Explicit])
def test_shard_map_over_a_concrete_mesh(axis: Any) -> None:
    """One with the axes of `mesh=`, whatever their types: what jax.jit does under `jax.set_mesh`."""
    mesh = jax.make_mesh((1, 1), ("data", "model"), devices=jax.devices()[:1], axis_types=(axis,) * 2)
    spec = PartitionSpec("data", "model")

    def fn(x: Any) -> Any:
        return jax.shard_map(lambda a: jax.lax.psum(a, "data"), mesh=mesh, in_specs=spec, out_specs=spec)(x)

    x = jax.device_put(np.ones((4, 4), np.float32), NamedSharding(mesh, spec))
    assert_same(call(lower_function(fn, mesh, args=(x,)), x), np.ones((4, 4), np.float32))
    if axis == AxisType.Auto:
        program = lower_function(fn, Mesh({"data": 1, "model": 1}), args=(np.asarray(x),))
        assert_same(call(program, np.asarray(x)), np.ones((4, 4), np.float32))


def test_meshes_that_contradict_each_other() -> None:
    def inside(x: Any) -> Any:
        specs = {"in_specs": PartitionSpec("data"), "out_specs": PartitionSpec("data")}
        return jax.shard_map(lambda a: a * 2, mesh=OBJECTS["of devices"], **specs)(x)

    def mixed(x: Any) -> Any:
        return jax.lax.with_sharding_constraint(inside(x), PartitionSpec("model"))

    x = np.ones((8, 8), np.float32)
    with pytest.raises(AnnotationError, match=r"(?s)another mesh itself.*pass the mesh that the function uses"):
        lower_function(mixed, OBJECTS["ours"], args=(x,))
    assert lower_function(mixed, OBJECTS["of devices"], args=(x,)).module.mesh == OBJECTS["ours"]
    with pytest.raises(AnnotationError, match="over data=4,model=2, but mesh= or an argument is over data=2,model=2"):
        lower_function(inside, Mesh({"data": 2, "model": 2}), args=(x,))


@pytest.mark.parametrize("seed", range(3))
def test_nameless_arguments_are_numbered_as_the_function_has_them(seed: int) -> None:
    """Those that jit dropped count, of functions and of exports without names."""
    draw = np.random.default_rng(seed)
    print("seed", seed)
    used = sorted(draw.choice(6, size=3, replace=False).tolist())
    fn = jax.jit(lambda *a: sum(a[k] * k for k in used))
    arguments = [np.full(2, k, np.float32) for k in range(6)]
    exported = jax.export.export(fn, platforms=["cpu"])(*arguments)
    bare = fn.lower(*arguments).as_text()
    assert "loc(" not in bare
    nameless = replace(exported, mlir_module_serialized=bare.encode())
    program = module_from_jax(nameless)
    assert program.module.arg_names == tuple(f"arg{k}" for k in used)
    assert_same(call(program, *arguments), np.full(2, sum(k * k for k in used), np.float32))
    assert module_from_jax(exported).module.arg_names == tuple(f"a[{k}]" for k in used)
    with pytest.raises(InputError, match=f"(?s)shape.*where: arg{used[-1]}"):
        program.flatten([*arguments[: used[-1]], np.ones(3), *arguments[used[-1] + 1 :]])


def test_lower_function_mistakes() -> None:
    x = np.ones((6, 4), np.float32)
    with pytest.raises(AnnotationError, match="needs a mesh"):
        lower_function(jnp.sin, in_shardings=P("data"), args=(x,))
    explicit = jax.sharding.AbstractMesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Explicit,))
    with pytest.raises(AnnotationError, match=r"(?s)equal shards.*type Auto"):
        lower_function(jnp.sin, explicit, in_shardings=P("data"), args=(x,))
    rows = jax.sharding.NamedSharding(jax.sharding.AbstractMesh((4,), ("data",)), jax.sharding.PartitionSpec("data"))
    with pytest.raises(AnnotationError, match=r"(?s)equal shards.*shardc\.jit"):
        module_from_jax(jax.jit(jnp.sin, in_shardings=rows), x)
    with pytest.raises(AnnotationError, match="UNCONSTRAINED"):
        lower_function(jnp.sin, Mesh({"data": 2}), in_shardings=P(P.UNCONSTRAINED), args=(x,))
    with pytest.raises(InputError, match="mesh is a str"):
        lower_function(jnp.sin, "data=2", args=(x,))
    with pytest.raises(InputError, match="cannot make a program"):
        module_from_jax(3)
    with pytest.raises(InputError, match="takes no further arguments"):
        module_from_jax(jax.jit(jnp.sin).trace(x), x)


def test_calls_of_python_are_read() -> None:
    def noisy(x: Any) -> Any:
        jax.debug.print("{x}", x=x, ordered=True)
        jax.debug.callback(lambda v: None, x)
        return jax.lax.fori_loop(0, 3, lambda i, c: (jax.debug.print("{c}", c=c, ordered=True), c + i)[1], x)

    x = np.ones(3, np.float32)
    program = module_from_jax(noisy, x)
    calls = [i for i in program.module.instructions() if is_callback(i)]
    assert sorted(map(title_of, calls)) == ["jax.debug.callback", "jax.debug.print", "jax.debug.print"]
    lines = {int(i.source.split(":")[1]) - noisy.__code__.co_firstlineno for i in calls}
    assert lines == {1, 2, 3} and all("test_jax_frontend.py:" in i.source for i in calls)
    assert [p.shape.dims for p in program.module.parameters] == [(3,)]
    np.testing.assert_array_equal(evaluate(program.module, [x], custom_calls=calls_of(program.callbacks))[0], x + 3)


@pytest.mark.parametrize("mesh", [None, Mesh({"data": 2})], ids=["one device", "mesh"])
def test_calls_without_their_functions_are_refused(mesh: Mesh | None) -> None:
    def calls(x: Any) -> Any:
        return jax.pure_callback(lambda v: np.asarray(v) * 2, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    x = np.ones(4, np.float32)
    program = lower_function(calls, mesh, args=(x,), in_shardings=P("data")) if mesh else module_from_jax(calls, x)
    with pytest.raises(UnsupportedError, match=r"jax\.pure_callback") as caught:
        evaluate(program.module, [x])
    assert f"test_jax_frontend.py:{calls.__code__.co_firstlineno + 1}" in str(caught.value)
    assert "pass the jitted function itself" in str(caught.value)


def test_without_jax_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(EnvironmentProblem, match="JAX") as caught:
        frontend.module_from_jax(lambda x: x, 1)
    assert "shardc[jax]" in str(caught.value)


def test_importing_the_front_end_loads_no_jax() -> None:
    code = "import sys, shardc.frontends.jax.frontend; assert 'jax' not in sys.modules and 'jaxlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_mesh_that_nothing_uses_is_kept() -> None:
    program = lower_function(lambda x: x + 1, Mesh({"data": 4}), args=(np.ones(3, np.float32),))
    assert program.module.mesh == Mesh({"data": 4})
    assert program.module.num_partitions == 4


def test_more_devices_than_the_machine_has() -> None:
    mesh = Mesh({"x": 64, "y": 128})
    program = lower_function(lambda a: a @ a, mesh, in_shardings=P("x", "y"), args=(np.ones((128, 128), np.float32),))
    assert program.module.num_partitions == 64 * 128


def test_accelerators_are_not_opened() -> None:
    code = """
import logging, jax, numpy as np
from shardc.frontends.jax import frontend
from shardc.launcher.jobs import accelerators
accelerators._plugins = lambda: True
frontend.module_from_jax(lambda x: x + 1, np.ones(3, np.float32))
assert jax.config.jax_platforms == "cpu", jax.config.jax_platforms
"""
    environment = {k: v for k, v in os.environ.items() if k != "JAX_PLATFORMS"}
    done = subprocess.run([sys.executable, "-c", code], check=True, env=environment, capture_output=True, text=True)
    assert "JAX_PLATFORMS" in done.stderr
