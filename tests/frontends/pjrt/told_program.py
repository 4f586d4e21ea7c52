"""What compiled programs tell of themselves, as JSON: the same on any of JAX's backends with four devices."""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.experimental.serialize_executable import deserialize_and_load, serialize
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

MESH = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"))


def put(shape: tuple[int, ...], *spec: Any) -> jax.Array:
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) / 100
    return jax.device_put(values, NamedSharding(MESH, P(*spec)))


def step(w: jax.Array, x: jax.Array) -> dict[str, jax.Array]:
    y = jnp.tanh(x @ w)
    return {"y": jax.lax.with_sharding_constraint(y, NamedSharding(MESH, P("x", "y"))), "sum": y.sum(), "w": w + 1}


def spec_of(sharding: Any) -> str:
    """A sharding, whatever its class: which indices each device has."""
    return str(sorted((d.id, str(i)) for d, i in sharding.devices_indices_map((8, 16)).items()))


def described(compiled: Any) -> dict[str, Any]:
    leaves = jax.tree.leaves
    stats, text = compiled.memory_analysis(), compiled.as_text()
    formats = [*leaves(compiled.input_formats[0]), *leaves(compiled.output_formats)]
    return {
        "inputs": [spec_of(s) for s in leaves(compiled.input_shardings[0])],
        "outputs": [repr(getattr(s, "spec", None)) for s in leaves(compiled.output_shardings)],
        "layouts": [str(f.layout.major_to_minor) for f in formats],
        "memory": [stats.argument_size_in_bytes, stats.alias_size_in_bytes],
        "transcendentals": compiled.cost_analysis()["transcendentals"],
        "modules": [m.name for m in compiled.runtime_executable().hlo_modules()],
        "partitions": "num_partitions=4" in text,
        "parameters": "f32[16,2" in text and "f32[4,16]" in text,
    }


def exported(w: jax.Array, x: jax.Array) -> list[Any]:
    program = export.export(jax.jit(step))(w, x)
    again = export.deserialize(program.serialize())
    symbolic = export.export(jax.jit(lambda a: a * 2))(jax.ShapeDtypeStruct(export.symbolic_shape("b, 4"), np.float32))
    twice = export.deserialize(symbolic.serialize()).call(jnp.ones((3, 4)))
    return [again.nr_devices, round(float(jax.jit(again.call)(w, x)["sum"]), 4), float(twice.sum())]


def shared() -> list[Any]:
    """Memory of other libraries, both ways."""
    array = jnp.arange(6.0).reshape(2, 3)
    seen = np.from_dlpack(array)
    given = np.arange(64, dtype=np.float32).reshape(8, 8)
    turned, cut = jnp.from_dlpack(np.asfortranarray(given)), jnp.from_dlpack(given.reshape(-1)[1:])
    return [
        seen.tolist(),
        seen.__array_interface__["data"][0] == array.unsafe_buffer_pointer(),
        turned.tolist() == given.tolist(),
        cut.tolist() == given.reshape(-1)[1:].tolist(),
        jax.dlpack.from_dlpack(array).tolist(),
    ]


def serialized(compiled: Any, *arguments: jax.Array) -> list[Any]:
    loaded = deserialize_and_load(*serialize(compiled))
    same = jax.tree.map(lambda a, b: bool((a == b).all()), loaded(*arguments), compiled(*arguments))
    return [same, described(loaded) == described(compiled)]


def refused() -> list[str]:
    lowered = jax.jit(lambda a: a + 1).lower(1.0)
    try:
        lowered.compile(compiler_options={"invalid_key": True})
    except jax.errors.JaxRuntimeError as e:
        return ["No such compile option: 'invalid_key'" in str(e)]
    return []


def main() -> None:
    w, x = put((16, 4), None, "y"), put((8, 16), "x", None)
    compiled = jax.jit(step, donate_argnums=0).lower(w, x).compile()
    mesh = jax.make_mesh((2, 2), ("x", "y"))
    with jax.set_mesh(mesh):
        a = jax.device_put(jnp.ones((8, 4)), P("x", None))
        partial = jax.jit(lambda a, b: jnp.einsum("ij,ik->jk", a, b, out_sharding=P(unreduced={"x"})))(a, a)
        unreduced = [str(partial.sharding.spec), jax.reshard(partial, P()).tolist()]
    nothing = jax.jit(lambda a: None).lower(x).compile()
    told = {
        "step": described(compiled),
        "one device": described(jax.jit(jnp.tanh).lower(np.ones((8, 16), np.float32)).compile())["memory"],
        "nothing": [repr(nothing(x)), jax.tree.leaves(nothing.output_shardings)],
        "unreduced": unreduced,
        "exported": exported(w, x),
        "serialized": serialized(jax.jit(step).lower(w, x).compile(), w, x),
        "shared": shared(),
        "refused": refused(),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
