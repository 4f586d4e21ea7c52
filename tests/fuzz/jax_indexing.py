# ruff: noqa: E501, PLW0108
"""Gathers, scatters, dynamic slices and updates in random JAX programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax_drawer import SIZES, Drawer
from jax_rows import exactly, full, keep, numeric, real, shaped
from jax_terms import Op, Step, Value, is_int

__all__ = ["INDEXING"]


def _take_draw(d: Drawer) -> Step | None:
    i = d.pick(full)
    j = d.pick(lambda v: is_int(v) and v.exact and len(v.shape) <= 2)
    if i is None or j is None:
        return None
    axis, mode = d.r.randrange(len(d.values[i].shape)), d.r.choice(["clip", "wrap", "fill"])
    if mode == "wrap" and d.values[i].shape[axis] > jnp.iinfo(d.values[j].dtype).max:
        return None  # JAX divides the indices by the size, in their own type
    return Step("take", (i, j), {"axis": axis, "mode": mode})


def _take(context: Any, step: Step, x: Any, i: Any) -> Any:
    fill = {"fill_value": 0} if step.params["mode"] == "fill" else {}
    return jnp.take(x, i, axis=step.params["axis"], mode=step.params["mode"], **fill)


def _along_draw(d: Drawer) -> Step | None:
    i = d.pick(lambda v: full(v) and v.exact and real(v))
    return None if i is None else Step("take_along", (i,), {"axis": d.r.randrange(len(d.values[i].shape))})


def _along(context: Any, step: Step, x: Any) -> Any:
    axis = step.params["axis"]
    return jnp.take_along_axis(x, jnp.argsort(x, axis=axis)[::-1], axis=axis)


def _start_draw(name: str) -> Callable[[Drawer], Step | None]:
    def draw(d: Drawer) -> Step | None:
        i = d.pick(full)
        j = d.pick(lambda v: is_int(v) and v.exact and v.shape == ())
        if i is None or j is None:
            return None
        sizes = tuple(d.r.randint(1, n) if d.r.random() < 0.7 else n for n in d.values[i].shape)
        return Step(name, (i, j), {"sizes": sizes, "axis": d.r.randrange(len(sizes))})

    return draw


def _starts(x: Any, at: Any, axis: int) -> list[Any]:
    return [at if k == axis else jnp.zeros_like(at) for k in range(x.ndim)]


def _dynamic_slice(context: Any, step: Step, x: Any, at: Any) -> Any:
    return lax.dynamic_slice(x, _starts(x, at, step.params["axis"]), step.params["sizes"])


def _dynamic_update(context: Any, step: Step, x: Any, at: Any) -> Any:
    part = x[tuple(slice(0, n) for n in step.params["sizes"])][::-1]
    return lax.dynamic_update_slice(x, part, _starts(x, at, step.params["axis"]))


def _at_draw(d: Drawer) -> Step | None:
    i = d.pick(lambda v: full(v) and numeric(v))
    j = d.pick(lambda v: is_int(v) and v.exact and len(v.shape) == 1)
    if i is None or j is None:
        return None
    # Which of several updates of one element wins is not defined: `set` of one value.
    return Step("at", (d.tamed(i, 16.0), j), {"kind": d.r.choice(["add", "max", "min", "set"])})


def _at(context: Any, step: Step, x: Any, i: Any) -> Any:
    i = i % x.shape[0] if i.dtype != jnp.uint8 or x.shape[0] < 256 else i
    kind = step.params["kind"]
    if kind == "set":
        return x.at[i].set(x[0] if x.ndim > 1 else x[-1])
    if kind in ("max", "min") and jnp.iscomplexobj(x):
        kind = "add"
    return getattr(x.at[i], kind)(jnp.ones((), x.dtype))


def _at_result(values: list[Value], step: Step) -> tuple[bool, float]:
    return values[0].exact, values[0].bound + values[1].size


def _segment_draw(d: Drawer) -> Step | None:
    i = d.pick(lambda v: full(v) and numeric(v))
    if i is None:
        return None
    j = d.pick(lambda v: is_int(v) and v.exact and v.shape == d.values[i].shape[:1])
    return None if j is None else Step("segment_sum", (d.tamed(i, 4.0), j), {"count": d.r.choice(SIZES)})


def _segment(context: Any, step: Step, x: Any, i: Any) -> Any:
    count = step.params["count"]
    return jax.ops.segment_sum(x, i % jnp.asarray(count, i.dtype), count)


INDEXING: dict[str, Op] = {
    "take": Op(_take_draw, _take, lambda v, s: keep(v[:1], s)),
    "take_along": Op(_along_draw, _along, keep),
    "dynamic_slice": Op(_start_draw("dynamic_slice"), _dynamic_slice, lambda v, s: keep(v[:1], s)),
    "dynamic_update": Op(_start_draw("dynamic_update"), _dynamic_update, lambda v, s: keep(v[:1], s)),
    "at": Op(_at_draw, _at, _at_result),
    "segment_sum": Op(_segment_draw, _segment, lambda v, s: (v[0].exact, v[0].bound * max(1, v[0].size))),
    "one_hot": shaped(lambda r, d, v: {"n": r.choice(SIZES)}, lambda x, n: jax.nn.one_hot(x, n), lambda v: is_int(v) and v.exact and v.size <= 256, exactly(1)),
}  # fmt: skip
