"""Windows in random JAX programs: reductions, pooling and convolutions."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax
from jax_drawer import Drawer
from jax_rows import full, real, shaped
from jax_terms import Op, Step, Value

__all__ = ["WINDOWS"]


def _window(r: Any, d: Drawer, v: Value) -> dict[str, Any]:
    return {
        "window": tuple(r.randint(1, min(n, 3)) for n in v.shape),
        "strides": tuple(r.choice([1, 1, 2, 3]) for _ in v.shape),
        "padding": r.choice(["VALID", "SAME", tuple((r.randint(0, 2), r.randint(0, 2)) for _ in v.shape)]),
        "base": tuple(r.choice([1, 1, 1, 2]) for _ in v.shape),
        "dilation": tuple(r.choice([1, 1, 1, 2]) for _ in v.shape),
    }


def _reduce(x: Any, kind: str, window: Any, strides: Any, padding: Any, base: Any, dilation: Any) -> Any:
    lowest = jnp.array(-100 if not jnp.issubdtype(x.dtype, jnp.unsignedinteger) else 0, x.dtype)
    function, start = {"sum": (lax.add, jnp.zeros((), x.dtype)), "max": (lax.max, lowest)}[kind]
    return lax.reduce_window(x, start, function, window, strides, padding, base, dilation)


def _conv_draw(d: Drawer) -> Step | None:
    i = d.pick(lambda v: v.dtype in ("float32", "float64", "bfloat16") and len(v.shape) in (3, 4) and v.size > 0)
    if i is None:
        return None
    a, r = d.values[i], d.r
    groups = r.choice([g for g in range(1, a.shape[1] + 1) if a.shape[1] % g == 0])
    spatial = tuple(r.randint(1, 3) for _ in a.shape[2:])
    kernel = (groups * r.randint(1, 3), a.shape[1] // groups, *spatial)
    params = {
        "kernel": kernel,
        "groups": groups,
        "strides": tuple(r.choice([1, 1, 2]) for _ in spatial),
        "padding": r.choice(["VALID", "SAME", tuple((r.randint(0, 2), r.randint(-1, 2)) for _ in spatial)]),
        "base": tuple(r.choice([1, 1, 2]) for _ in spatial),
        "dilation": tuple(r.choice([1, 1, 2]) for _ in spatial),
    }
    return Step("convolution", (d.tamed(i, 4.0),), params)


def _convolution(context: Any, step: Step, x: Any) -> Any:
    p = step.params
    size = 1
    for n in p["kernel"]:
        size *= n
    kernel = (jnp.arange(size) % 5 - 2).astype(x.dtype).reshape(p["kernel"]) + x.ravel()[0]
    return lax.conv_general_dilated(
        x, kernel, p["strides"], p["padding"], p["base"], p["dilation"], feature_group_count=p["groups"]
    )


def _conv_result(values: list[Value], step: Step) -> tuple[bool, float]:
    size = 1
    for n in step.params["kernel"][1:]:
        size *= n
    return values[0].exact, values[0].bound * 8 * size


def _few(v: Value) -> bool:
    return full(v) and real(v) and len(v.shape) <= 3


WINDOWS: dict[str, Op] = {
    "window_sum": shaped(
        _window, lambda x, **o: _reduce(x, "sum", **o), _few, lambda v, s: (v[0].exact, v[0].bound * 27)
    ),
    "window_max": shaped(
        _window, lambda x, **o: _reduce(x, "max", **o), _few, lambda v, s: (v[0].exact, max(100.0, v[0].bound))
    ),
    "convolution": Op(_conv_draw, _convolution, _conv_result),
}
