"""What loops and branches add up is reduced once behind them, and the results are those of the whole program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from partition_support import integers, run_partitioned

from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.ir import Module
from shardc.partitioner.equivalence import agree
from shardc.partitioner.report import build_report
from shardc.sharding.propagate import propagate

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax
P = jax.sharding.PartitionSpec

AUTO = jax.sharding.AxisType.Auto
MESH = jax.sharding.AbstractMesh((4,), ("x",), axis_types=(AUTO,))
STEPS = 5
Step = Callable[[Any, Any, Any], Any]


def loss(w: Any, x: Any) -> Any:
    return jnp.sum(jnp.tanh(x @ w) * x)


GRAD = jax.grad(loss)


def scanned(step: Step, start: Callable[[Any], Any] = jnp.zeros_like) -> Callable[[Any, Any], Any]:
    """``step(total, w, x)`` over all microbatches."""
    return lambda w, x: lax.scan(lambda t, x: (step(t, w, x), None), start(w), x)[0]


def by_layers(w: Any, x: Any) -> Any:
    """Gradients of layers, stacked by an inner loop and added up by an outer one."""

    def whole(ws: Any, x: Any) -> Any:
        return jnp.sum(lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, ws)[0])

    ws = jnp.stack([w, w + 1, w + 2])
    return lax.scan(lambda t, x: (t + jax.grad(whole)(ws, x), None), jnp.zeros_like(ws), x)[0]


def in_place(w: Any, x: Any) -> Any:
    """Every iteration adds to one of two."""
    body: Callable[[Any, Any], Any] = lambda i, t: t.at[i % 2].add(GRAD(w, x[i]))  # noqa: E731
    return lax.fori_loop(0, STEPS, body, jnp.zeros((2, *w.shape)))


def with_statistics(w: Any, x: Any) -> Any:
    def step(t: Any, x: Any) -> Any:
        total, low, high = t
        return (total + x.T @ x, jnp.minimum(low, x.min(0)), jnp.maximum(high, x.max(0))), None

    return lax.scan(step, (w, w[0], w[1]), x)[0]


def momenta(w: Any, x: Any) -> Any:
    """Two accumulators, one of which reads the other."""

    def step(t: Any, x: Any) -> Any:
        m, v = t
        return (0.5 * m + GRAD(w, x), v - m), None

    return lax.scan(step, (jnp.zeros_like(w), w), x)[0]


def nested(w: Any, x: Any) -> Any:
    inner = scanned(lambda t, w, x: t + GRAD(w, x))
    return lax.scan(lambda t, i: (t + i * inner(w, x), None), w, jnp.arange(3.0))[0]


def unknown(w: Any, x: Any) -> Any:
    """A loop whose length the data decides."""
    n = jnp.int32(jnp.abs(w[0, 0])) % STEPS + 1
    return lax.fori_loop(0, n, lambda i, t: t + GRAD(w, x[i % STEPS]), w)


def constrained(t: Any, w: Any, x: Any) -> Any:
    return lax.with_sharding_constraint(t + GRAD(w, x), jax.sharding.NamedSharding(MESH, P()))


#: Function and the reductions that it needs over all iterations.
ONCE: dict[str, tuple[Callable[[Any, Any], Any], int]] = {
    "sum": (scanned(lambda t, w, x: t + GRAD(w, x)), 1),
    "difference": (scanned(lambda t, w, x: t - GRAD(w, x), lambda w: w), 1),
    "decay": (scanned(lambda t, w, x: 0.5 * t + GRAD(w, x), lambda w: w), 1),
    "varying decay": (scanned(lambda t, w, x: t * w[0, 0] + GRAD(w, x)), 1),
    "mean": (scanned(lambda t, w, x: t + GRAD(w, x) / STEPS), 1),
    "weight decay": (scanned(lambda t, w, x: t + (GRAD(w, x) + 0.5 * w)), 1),
    "penalty": (scanned(lambda t, w, x: t + jax.grad(lambda w: loss(w, x) + (w * w).sum())(w), lambda w: w), 1),
    "views": (scanned(lambda t, w, x: (t.T.reshape(8, 8) + GRAD(w, x).T).T), 1),
    "wider": (scanned(lambda t, w, x: t + GRAD(w.astype("bfloat16"), x.astype("bfloat16")).astype("float32")), 1),
    "chosen": (scanned(lambda t, w, x: jnp.where(w > 0, t + GRAD(w, x), t)), 1),
    "branches": (
        scanned(lambda t, w, x: lax.cond(w[0, 0] > 0, lambda: t + GRAD(w, x), lambda: t - 2 * GRAD(w, x))),
        1,
    ),
    "one branch": (scanned(lambda t, w, x: lax.cond(w[0, 0] > 0, lambda: t + GRAD(w, x), lambda: t)), 1),
    "constrained": (scanned(constrained), 1),
    "statistics": (with_statistics, 3),
    "momenta": (momenta, 2),
    "nested": (nested, 1),
    "by layers": (by_layers, 1),
    "in place": (in_place, 1),
    "unknown": (unknown, 1),
    "stacked": (lambda w, x: lax.scan(lambda t, x: (t, GRAD(w, x)), 0, x)[1], 1),
}


def partitioned(function: Callable[[Any, Any], Any], out: Any) -> dict[str, Any]:
    """The report of the partitioned program, after running it."""
    return run(function, out, np.float32)[1]


def run(function: Callable[[Any, Any], Any], out: Any, dtype: Any) -> tuple[Module, dict[str, Any]]:
    """The partitioned program and its report, after comparing its results."""
    from shardc.frontends.jax.frontend import module_from_jax

    def at(shape: tuple[int, ...], *spec: Any) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=jax.sharding.NamedSharding(MESH, P(*spec)))

    jitted = jax.jit(function, out_shardings=jax.sharding.NamedSharding(MESH, out))
    module = propagate(module_from_jax(jitted, at((8, 8)), at((STEPS, 16, 8), None, "x")).module).module
    rng = np.random.default_rng(0)
    args = [integers(rng, p.shape) for p in module.parameters]
    want, reference = evaluate(module, args), evaluate(module, args, float64=True)
    local, got = run_partitioned(module, args)
    assert all(agree(g, w, r) for g, w, r in zip(got, want, reference, strict=True))
    return local, build_report(local)


def reductions(report: dict[str, Any]) -> int:
    return sum(int(c["count"]) for c in report["collectives"] if c["op"] in ("all-reduce", "reduce-scatter"))


@pytest.mark.parametrize("name", ONCE)
def test_reduced_once(name: str) -> None:
    function, expected = ONCE[name]
    report = partitioned(function, P())
    assert reductions(report) <= expected
    assert sum(c["count"] for c in report["collectives"]) <= expected


def both_ways(w: Any, x: Any) -> Any:
    """The sum so far is read by what is not linear in it."""
    return scanned(lambda t, w, x: t + GRAD(w + jnp.sin(t), x))(w, x)


def stopping(w: Any, x: Any) -> Any:
    """The sum so far decides when to stop."""
    state = lax.while_loop(
        lambda s: (s[0] < STEPS) & (jnp.abs(s[1]).max() < 1e9),
        lambda s: (s[0] + 1, s[1] + GRAD(w, x[s[0]])),
        (0, jnp.zeros_like(w)),
    )
    return state[1]


def test_narrow_sums_are_kept_in_f32_while_they_are_partial() -> None:
    local, report = run(scanned(lambda t, w, x: 0.5 * t + GRAD(w, x)), P(), jnp.bfloat16)
    assert [(c["op"], c["count"], c["payload_bytes"]) for c in report["collectives"]] == [("all-reduce", 1, 128)]
    (loop,) = [i for i in local.entry if i.opcode == "while"]
    assert "f32[8,8]" in map(str, loop.shape.elements)


def test_narrow_values_that_are_only_moved_stay_narrow() -> None:
    local, report = run(lambda w, x: lax.scan(lambda t, x: (t, GRAD(w, x)), 0, x)[1], P(), jnp.bfloat16)
    assert reductions(report) == 1
    (loop,) = [i for i in local.entry if i.opcode == "while"]
    assert not any(s.dtype.name == "f32" for s in loop.shape.elements)


def test_rounded_terms_are_reduced_before_they_are_rounded() -> None:
    report = partitioned(scanned(lambda t, w, x: t + GRAD(w, x).astype(t.dtype), lambda w: w.astype("bfloat16")), P())
    assert reductions(report) == STEPS


def test_reduced_in_every_iteration() -> None:
    assert reductions(partitioned(both_ways, P())) == STEPS
    products = partitioned(scanned(lambda t, w, x: t * (t + GRAD(w, x)), jnp.ones_like), P())
    assert reductions(products) == STEPS


def test_reduced_before_the_condition_reads_it() -> None:
    report = partitioned(stopping, P())
    assert any(c["unknown_trip_count"] for c in report["collectives"] if c["payload_bytes"] == 256)
