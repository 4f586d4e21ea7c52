"""Programs as JAX users write them, from jit to the partitioned numbers and the collectives they need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from partition_support import collectives, scatter_poisoned
from test_xla import through_xla

from shardc.frontends.jax.frontend import module_from_jax
from shardc.hlo.evaluate import evaluate, evaluate_spmd
from shardc.hlo.verify import verify
from shardc.partitioner.equivalence import agree, gather_results
from shardc.partitioner.partition import partition
from shardc.sharding.propagate import propagate

jax = pytest.importorskip("jax")
jnp = jax.numpy

Case = tuple[Any, tuple[Any, ...]]


def mesh() -> Any:
    from jax.sharding import AbstractMesh, AxisType

    return AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)


def named(*spec: Any) -> Any:
    from jax.sharding import NamedSharding, PartitionSpec

    return NamedSharding(mesh(), PartitionSpec(*spec))


def array(shape: tuple[int, ...], *spec: Any, dtype: Any = np.float32) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=named(*spec))


BOTH = ("data", "model")


def mlp_fsdp() -> Case:
    def step(weights: Any, x: Any, y: Any) -> Any:
        def loss(weights: Any) -> Any:
            h = x
            for w in weights:
                h = jax.nn.relu(h @ w)
            return jnp.mean((h - y) ** 2)

        value, gradients = jax.value_and_grad(loss)(weights)
        return value, jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients)

    weights = [array((64, 64), BOTH, None) for _ in range(3)]
    batch = array((128, 64), BOTH, None)
    return jax.jit(step, out_shardings=(named(), [named(BOTH, None)] * 3)), (weights, batch, batch)


def scan_fsdp() -> Case:
    def step(weights: Any, x: Any, y: Any) -> Any:
        def loss(weights: Any) -> Any:
            def layer(h: Any, w: Any) -> Any:
                return jnp.tanh(h @ w), None

            h, _ = jax.lax.scan(jax.checkpoint(layer), x, weights)
            return jnp.mean((h - y) ** 2)

        value, gradient = jax.value_and_grad(loss)(weights)
        return value, weights - 0.1 * gradient

    batch = array((128, 64), BOTH, None)
    outs = (named(), named(None, BOTH, None))
    return jax.jit(step, out_shardings=outs), (array((4, 64, 64), None, BOTH, None), batch, batch)


def attention_tp() -> Case:
    def f(x: Any, wq: Any, wk: Any, wv: Any, wo: Any) -> Any:
        q, k, v = (jnp.einsum("bsd,dhe->bhse", x, w) for w in (wq, wk, wv))
        causal = jnp.tril(jnp.ones((16, 16), bool))
        scores = jnp.where(causal, jnp.einsum("bhse,bhte->bhst", q, k), -1e9)
        out = jnp.einsum("bhst,bhte->bhse", jax.nn.softmax(scores), v)
        return jnp.einsum("bhse,hed->bsd", out, wo) + x

    heads = [array((32, 4, 8), None, "model") for _ in range(3)]
    return jax.jit(f), (array((4, 16, 32), "data"), *heads, array((4, 8, 32), "model"))


def experts() -> Case:
    def f(x: Any, gate: Any, w1: Any, w2: Any) -> Any:
        p = jax.nn.softmax(x @ gate)
        m = jax.nn.one_hot(jnp.argmax(p, -1), 8)
        h = jax.nn.relu(jnp.einsum("etd,edf->etf", jnp.einsum("td,te->etd", x, m), w1))
        return jnp.einsum("etd,te->td", jnp.einsum("etf,efd->etd", h, w2), m * p)

    return jax.jit(f), (
        array((32, 16), "data"),
        array((16, 8)),
        array((8, 16, 32), "model"),
        array((8, 32, 16), "model"),
    )


def decode() -> Case:
    def f(cache: Any, x: Any, position: Any, wq: Any, wk: Any, wo: Any) -> Any:
        k, q = jnp.einsum("bd,dhe->bhe", x, wk), jnp.einsum("bd,dhe->bhe", x, wq)
        cache = jax.lax.dynamic_update_slice(cache, k[:, None], (0, position, 0, 0))
        a = jax.nn.softmax(jnp.einsum("bhe,bthe->bht", q, cache))
        return cache, jnp.einsum("bhe,hed->bd", jnp.einsum("bht,bthe->bhe", a, cache), wo)

    heads = array((32, 4, 8), None, "model")
    cache = array((4, 16, 4, 8), "data", None, "model")
    position = array((), dtype=np.int32)
    return jax.jit(f), (cache, array((4, 32), "data"), position, heads, heads, array((4, 8, 32), "model"))


def convnet() -> Case:
    def step(weights: Any, x: Any) -> Any:
        def loss(weights: Any) -> Any:
            h = x
            for w in weights:
                h = jax.lax.conv_general_dilated(h, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
                h = jax.nn.relu(h)
            h = jax.lax.reduce_window(h, -np.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
            return jnp.mean(h**2)

        return jax.value_and_grad(loss)(weights)

    return jax.jit(step), ([array((3, 3, 4, 8)), array((3, 3, 8, 8))], array((8, 8, 8, 4), "data"))


def k_means() -> Case:
    def f(x: Any, centres: Any) -> Any:
        nearest = jnp.argmin(jnp.sum((x[:, None] - centres[None]) ** 2, -1), 1)
        total = jax.ops.segment_sum(x, nearest, 8)
        return total / jnp.maximum(jax.ops.segment_sum(jnp.ones(x.shape[0]), nearest, 8), 1)[:, None]

    return jax.jit(f), (array((64, 4), BOTH), array((8, 4)))


def branches() -> Case:
    def f(p: Any, x: Any, w: Any) -> Any:
        return jax.lax.cond(p, lambda: x @ w, lambda: jnp.zeros((8, 16), np.float32)) + x[:, :16]

    return jax.jit(f), (array((), dtype=bool), array((8, 32), "data", "model"), array((32, 16), "model"))


def random_numbers() -> Case:
    def f(x: Any, key: Any) -> Any:
        key = jax.random.wrap_key_data(key)
        return x + jax.random.normal(key, x.shape), jax.random.bernoulli(key, 0.5, x.shape)

    return jax.jit(f), (array((8, 16), "data", "model"), jax.ShapeDtypeStruct((2,), np.uint32))


#: The collectives that each program needs, and no more; None where only the numbers matter.
PROGRAMS: dict[Callable[[], Case], dict[str, int] | None] = {
    mlp_fsdp: {"all-gather": 1, "reduce-scatter": 3, "all-reduce": 1},
    scan_fsdp: {"all-gather": 2, "reduce-scatter": 1, "all-reduce": 1},
    attention_tp: {"all-reduce": 1},
    experts: None,
    decode: {"all-reduce": 1},
    convnet: {"all-reduce": 1},
    k_means: {"all-reduce": 2},
    branches: None,
    random_numbers: {},
}


def arguments(shapes: Any) -> list[Any]:
    rng = np.random.default_rng(0)
    out = []
    for s in shapes:
        dtype = s.dtype.numpy
        if s.dtype.kind == "pred":
            out.append(np.ones(s.dims, bool))
        elif s.dtype.is_integer:
            out.append(rng.integers(0, 5, s.dims).astype(dtype))
        else:
            out.append((rng.standard_normal(s.dims) * 0.3).astype(dtype))
    return out


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda f: f.__name__)
def test_program(make: Callable[[], Case]) -> None:
    function, abstract = make()
    module = propagate(module_from_jax(function, *abstract).module).module
    local = partition(module)
    verify(local)
    args = arguments([p.shape for p in module.parameters])
    want, reference = evaluate(module, args), evaluate(module, args, float64=True)
    got = gather_results(local, evaluate_spmd(local, scatter_poisoned(local, args)))
    for g, w, r in zip(got, want, reference, strict=True):
        assert agree(g, w, r)
    expected = PROGRAMS[make]
    if expected is not None:
        assert Counter(collectives(local)) == expected


def test_xla_runs_them_too(tmp_path: Any) -> None:
    cases, wanted = {}, {}
    for make in (mlp_fsdp, attention_tp, scan_fsdp):
        function, abstract = make()
        module = propagate(module_from_jax(function, *abstract).module).module
        args = arguments([p.shape for p in module.parameters])
        cases[make.__name__] = (partition(module), args)
        wanted[make.__name__] = (evaluate(module, args), evaluate(module, args, float64=True))
    for name, results in through_xla(cases, tmp_path).items():
        for g, w, r in zip(results, *wanted[name], strict=True):
            assert agree(g, w, r), name
