"""What users of JAX do with arrays: an unmodified script, which writes all that it computed to its first argument."""

import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

found: dict[str, np.ndarray] = {}


def note(name, values):
    for n, value in enumerate(jax.tree.leaves(values)):
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            value = jax.random.key_data(value)
        array = np.asarray(value)
        found[f"{name} {n}"] = array if array.dtype.isbuiltin == 1 else array.astype(np.float32)


def shards(name, array):
    """The shards, in the order of their devices."""
    parts = sorted(array.addressable_shards, key=lambda s: s.device.id)
    note(name, [s.data for s in parts])
    found[f"{name} where"] = np.array([[s.device.id, *((i.start or 0) for i in s.index)] for s in parts])


def one_device():
    x = jnp.arange(12.0).reshape(3, 4)
    note("eager", [x @ x.T, jnp.sin(x).mean(), x[1:, ::2], jnp.where(x > 3, x, -x), jnp.sort(x[::-1], axis=0), x.T + 1])
    note("grad", jax.grad(lambda w, b: jnp.tanh(x.T @ w + b).sum(), argnums=(0, 1))(jnp.ones((3, 2)), jnp.ones(2)))
    note("scan", lax.scan(lambda c, a: (c * 0.5 + a, jnp.exp(-c)), jnp.zeros(4), x))
    note("while", lax.while_loop(lambda s: s[0] < 10, lambda s: (s[0] + 3, s[1] * 2), (0, 1.0)))
    note("cond", [lax.cond(p, jnp.sin, jnp.cos, 0.5) for p in (True, False)])
    key = jax.random.key(7)
    note("random", [key, jax.random.normal(key, (5,)), jax.random.permutation(key, 7), jax.random.uniform(key, (2, 2))])
    note("empty", jax.jit(lambda x: (x[:0], jnp.zeros((0, 3)), x.sum()))(x))
    jax.jit(lambda x: None)(x)
    types = ["bool", "int8", "uint16", "int32", "uint8", "float16", "bfloat16", "complex64", "float8_e4m3fn", "int4"]
    note("types", [jax.jit(lambda x: x + x)(jnp.array([0, 1, 1], t)) for t in types])
    note("placed", jax.device_put(x, jax.devices()[2]) + 1)
    note("ends", [f(x) for f in (jnp.linalg.norm, jnp.cumsum, jnp.argmax, jnp.unique, jnp.fft.fft)])
    compiled = jax.jit(lambda x: x * 3).lower(x).compile()
    note("compiled", compiled(x))
    donated = jnp.ones((4, 4))
    note("donated", jax.jit(lambda x: x + 1, donate_argnums=0)(donated))
    kept = jnp.ones((3, 5))
    note("donated for nothing", jax.jit(lambda x: x.sum(), donate_argnums=0)(kept))
    found["gone"] = np.array([donated.is_deleted(), kept.is_deleted()])
    sunk = jax.jit(lambda x: (lax.dce_sink(jnp.sin(x), prevent_mlir_dce=True), x + 1)).lower(x).compile()
    note("beside a sink", sunk(x)[1])
    assert "dce_sink" in sunk.as_text() and "sine" in sunk.as_text()
    note("beside a token", jax.jit(lambda x, t: (x + 1, t))(x, lax.create_token(None))[0])
    with jax.enable_x64(True):
        note("wide", jnp.arange(3) * 1.5)


def sharded():
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    back = jax.sharding.Mesh(mesh.devices.reshape(-1)[::-1].reshape(2, 4), ("a", "b"))
    put = lambda v, *spec, over=mesh: jax.device_put(v, NamedSharding(over, P(*spec)))  # noqa: E731
    a, b = np.arange(64.0, dtype=np.float32).reshape(8, 8), np.eye(8, dtype=np.float32)[::-1] * 2
    x, w = put(a, "x", "y"), put(b, "y", None)
    shards("put", x)
    result = jax.jit(lambda x, w: (jnp.tanh(x @ w), x.sum(0), (x * 2).T))(x, w)
    note("jit", result)
    fixed = jax.jit(lambda x: x @ x.T, out_shardings=NamedSharding(mesh, P(("y", "x"), None)))(x)
    shards("fixed", fixed)
    shards("moved", put(x, None, "x"))
    shards("other order", put(x, "b", "a", over=back))
    shards("part of the devices", jax.device_put(x, NamedSharding(jax.make_mesh((2,), ("z",)), P(None, "z"))))
    shards("one device", jax.device_put(x, SingleDeviceSharding(jax.devices()[5])))
    inside = jax.jit(lambda x: lax.with_sharding_constraint(x + 1, NamedSharding(mesh, P("y", "x"))) * x)(x)
    note("constrained", inside)
    note("uneven", jax.jit(lambda x: (x[:7] @ x[:7].T, x[1:6, 2:7]))(x))
    state = {"w": put(b, "x", None), "n": put(np.float32(1))}
    grow = jax.jit(lambda s, x: {"w": s["w"] + x.T @ x, "n": s["n"] * 2}, donate_argnums=0)
    for _ in range(3):
        state = grow(state, x)
    note("donated over devices", state)
    note("eager over devices", [x + 1, x @ w, jnp.sum(x, axis=1), x[2], jnp.concatenate([x, x])])
    note("several at once", [jax.device_put(a[i], d) * i for i, d in enumerate(jax.devices())])


def looked_at():
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    a = jax.device_put(np.arange(32.0, dtype=np.float32).reshape(8, 4), NamedSharding(mesh, P("x", "y")))
    seen = []
    look = partial(jax.debug.inspect_array_sharding, callback=lambda s: seen.append(str(s.spec)))

    def in_loop(c, _):
        look(c)
        return c * 2, None

    def whole(x):
        y = lax.scan(in_loop, jnp.sin(x), None, length=3)[0].T @ x
        look(y)
        return x + 1

    def shard(x):
        look(x)
        return x

    note("looked at", jax.jit(whole)(a))
    jax.jit(jax.shard_map(shard, mesh=mesh, in_specs=P("x"), out_specs=P("x")))(a)
    jax.jit(jax.shard_map(shard, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"}))(a)
    assert len(seen) == 4
    found["shardings seen"] = np.frombuffer(" ".join(seen).encode(), np.uint8)


def manual():
    mesh = jax.make_mesh((4, 2), ("x", "y"))
    f = partial(jax.shard_map, mesh=mesh, in_specs=P("x", "y"))
    plain = np.arange(32.0, dtype=np.float32).reshape(8, 4)
    a = jax.device_put(plain, NamedSharding(mesh, P("x", "y")))
    note("psum", f(lambda v: lax.psum(v, ("x", "y")), out_specs=P())(a))
    note("permute", f(lambda v: lax.ppermute(v, "x", [(i, (i + 1) % 4) for i in range(4)]), out_specs=P("x", "y"))(a))
    note("gather", jax.jit(f(lambda v: lax.all_gather(v, "y", axis=1, tiled=True) * lax.axis_index("x"),
                             out_specs=P("x", None), check_vma=False))(a))  # fmt: skip
    note("pmap", jax.pmap(lambda v: (v * 2, lax.psum(v, "i")), axis_name="i")(np.arange(16.0).reshape(8, 2)))
    with jax.set_mesh(mesh):
        x = jax.device_put(a, P("x", "y"))
        y = jax.jit(lambda x: jnp.einsum("ij,kj->ik", x, x, out_sharding=P("x", None)))(x)
        shards("explicit", y)
        part = jax.jit(lambda x: jnp.einsum("ij,kj->ik", x, x, out_sharding=P("x", None, unreduced={"y"})))(x)
        note("unreduced", [s.data for s in sorted(part.addressable_shards, key=lambda s: s.device.id)])
        note("reduced", jax.jit(lambda p: jax.reshard(p, P("x", "y")))(part))
        ends = [(P("x", "y"), P(None, "y")), (P("y", "x"), P("y")), (P("x"), P()), (P(("y", "x")), P("y"))]
        for n, (split, kept) in enumerate(ends):
            shares = jax.device_put(jax.device_put(plain + 1, split), kept.update(unreduced={"x"}))
            note(f"shares {n}", [s.data for s in sorted(shares.addressable_shards, key=lambda s: s.device.id)])
            note(f"shares added {n}", jax.jit(lambda p: jax.reshard(p, P()))(shares))


one_device()
sharded()
looked_at()
manual()
np.savez(sys.argv[1], **found)
