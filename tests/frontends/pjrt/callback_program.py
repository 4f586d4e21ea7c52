"""Calls of Python under the plug-in and on JAX's own CPU backend: an unmodified script that prints what it saw."""

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

seen: dict[str, object] = {}
F32 = jax.ShapeDtypeStruct((), jnp.float32)
mesh = jax.make_mesh((4,), ("x",))
split = NamedSharding(mesh, P("x"))


def note(name, value):
    seen[name] = np.asarray(value).tolist() if not isinstance(value, list | str) else value


def plain():
    calls = []
    f = jax.jit(lambda x: jax.pure_callback(lambda v: np.sin(v) + 1, jax.ShapeDtypeStruct(x.shape, x.dtype), x) * 2)
    note("pure", f(jnp.arange(3.0)))
    note("pure again", f(jnp.arange(3.0) + 1))

    @jax.jit
    def g(x):
        jax.debug.callback(lambda v, k: calls.append((k, float(v))), x.sum(), "sum")
        jax.debug.print("x is {x} and {y}", x=x, y=x.dtype)
        return x + 1

    g(jnp.arange(2.0)).block_until_ready()
    jax.effects_barrier()
    note("debug", calls)
    values = (np.int8(3), np.array([True, False]), np.array([1 + 2j], np.complex64), np.zeros((2, 0, 3), np.float32))
    types = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in values]
    back = jax.jit(lambda *vs: jax.pure_callback(lambda *given: given[::-1], types[::-1], *vs))(*values)
    note("types", [f"{v.dtype}{v.shape}" for v in back])
    half = jax.ShapeDtypeStruct((2,), jnp.bfloat16)
    note("bf16", jax.jit(lambda x: jax.pure_callback(lambda v: v * 2, half, x))(jnp.ones(2, jnp.bfloat16)))


def ordered():
    order = []

    def log(k):
        order.append(int(k))

    @jax.jit
    def loop(x):
        def body(k, carry):
            io_callback(log, None, k, ordered=True)
            return carry * 2

        io_callback(log, None, 100, ordered=True)
        y = jax.lax.fori_loop(0, 4, body, x)
        io_callback(log, None, 101, ordered=True)
        return y

    for _ in range(2):
        loop(jnp.float32(1))
    jax.effects_barrier()
    note("ordered", order)

    count = [0]

    def tick():
        count[0] += 1
        return np.int32(count[0])

    @jax.jit
    def ticks():
        one = jax.ShapeDtypeStruct((), jnp.int32)
        return [io_callback(tick, one, ordered=True) for _ in range(3)]

    note("ticks", [int(v) for v in ticks() + ticks()])


def control():
    hits = []

    @jax.jit
    def f(x):
        def yes(v):
            jax.debug.callback(lambda w: hits.append(("yes", float(w))), v)
            return v * 10

        def no(v):
            jax.debug.callback(lambda w: hits.append(("no", float(w))), v)
            return -v

        return jax.lax.cond(x > 0, yes, no, x)

    note("cond", [float(f(1.0)), float(f(-2.0))])
    jax.effects_barrier()
    note("cond calls", hits)

    def host(v):
        return np.float32(v * v)

    scanned = jax.jit(lambda xs: jax.lax.scan(lambda c, x: (c + jax.pure_callback(host, F32, x), c), 0.0, xs))
    note("scan", scanned(jnp.arange(5.0))[0])
    for method in ("sequential", "expand_dims", "broadcast_all"):
        call = partial(jax.pure_callback, lambda v, w: v + w, F32, vmap_method=method)
        note(f"vmap {method}", jax.jit(jax.vmap(call, (0, None)))(jnp.arange(3.0), 1.0))

    @jax.custom_jvp
    def square(x):
        return jax.pure_callback(host, F32, x)

    square.defjvp(lambda p, t: (square(*p), 2 * p[0] * t[0]))
    note("grad", jax.jit(jax.grad(square))(3.0))


def sharded():
    shapes = []
    x = jax.device_put(jnp.arange(8.0), split)

    def host(v):
        shapes.append(v.shape)
        return np.asarray(v) * 3

    @jax.jit
    def f(v):
        jax.debug.callback(lambda w: shapes.append(("debug", w.shape)), v)
        return jax.pure_callback(host, jax.ShapeDtypeStruct(v.shape, v.dtype), v) + 1

    note("global", f(x))
    jax.effects_barrier()
    note("global calls", sorted(map(str, shapes)))
    parts = []

    def local(v):
        parts.append(float(np.sum(v)))
        return np.asarray(v) * 2

    @jax.jit
    @partial(jax.shard_map, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    def g(v):
        made = jax.pure_callback(local, jax.ShapeDtypeStruct(v.shape, v.dtype), v)
        return made + jax.lax.psum(v.sum(), "x")

    note("manual", g(x))
    note("manual calls", sorted(parts))
    looked = []
    h = jax.jit(lambda v: (jax.debug.callback(lambda w: looked.append(w.shape), v, partitioned=True), v + 1)[1])
    note("partitioned", h(x))
    jax.effects_barrier()
    note("partitioned calls", sorted(map(str, looked)))


def failing():
    def fail(v):
        raise ValueError(f"no {v.shape} here")

    f = jax.jit(lambda x: jax.pure_callback(fail, jax.ShapeDtypeStruct(x.shape, x.dtype), x) + 1)
    try:
        f(jnp.arange(3.0)).block_until_ready()
    except Exception as error:
        note("raised", [type(error).__name__, "ValueError: no (3,) here" in str(error)])
    wrong = jax.jit(lambda x: jax.pure_callback(lambda v: v[:2], jax.ShapeDtypeStruct((3,), x.dtype), x))
    try:
        wrong(jnp.arange(3.0)).block_until_ready()
    except Exception as error:
        note("wrong shape", [type(error).__name__, "Incorrect output shape" in str(error)])
    note("after", f.lower(jnp.arange(2.0)) is not None and jax.jit(lambda x: x + 1)(jnp.arange(2.0)))


def nested():
    inner = jax.jit(lambda x: jnp.cumsum(x) * 2)

    def host(v):
        y = inner(jnp.asarray(v)) + 1
        big = jnp.ones((300, 300)) @ jnp.ones((300, 300))
        shown = jax.pure_callback(lambda w: np.asarray(w) + 1, jax.ShapeDtypeStruct(y.shape, y.dtype), y)
        return np.asarray(shown) + np.asarray(big)[0, 0]

    f = jax.jit(lambda x: jax.pure_callback(host, jax.ShapeDtypeStruct(x.shape, x.dtype), x) * 10)
    note("nested", f(jnp.arange(4.0)))


def threads():
    f = jax.jit(lambda x: jax.pure_callback(lambda v: np.asarray(v) + 1, jax.ShapeDtypeStruct((), jnp.float32), x))
    with ThreadPoolExecutor(4) as pool:
        note("threads", [float(v) for v in pool.map(lambda k: f(jnp.float32(k)), range(40))])
    note("alive", threading.active_count() < 100)


for part in (plain, ordered, control, sharded, failing, nested, threads):
    part()
    print(part.__name__, file=sys.stderr, flush=True)
print(json.dumps(seen))
