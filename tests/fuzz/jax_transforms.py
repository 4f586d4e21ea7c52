# ruff: noqa: E501
"""Loops, branches, gradients, vmap, nested jit and shard_map in random JAX programs: steps with bodies of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax_drawer import Drawer
from jax_ops import OPS
from jax_terms import Body, Op, Step, Value, is_float, is_int, run

__all__ = ["TABLE"]


def _apply(body: Body, context: Any, *args: Any) -> Any:
    return run(TABLE, body, context, *args)[0]


def _others(d: Drawer, count: int, fits: Callable[[Value], bool] = lambda v: True) -> list[int]:
    found = [d.pick(fits) for _ in range(d.r.randint(0, count))]
    return [i for i in found if i is not None]


def _loop_draw(d: Drawer) -> Step | None:
    """scan: a carry, what is read whole, and what is read row by row; the last carry or what each round gave."""
    i = d.pick(lambda v: v.dtype != "bool" and v.size > 0)
    if i is None:
        return None
    i = d.tamed(i, 8.0)
    carry = d.values[i]
    whole = _others(d, 2)
    rows = _others(d, 1, lambda v: len(v.shape) >= 1 and v.shape[0] > 0)
    length = d.values[rows[0]].shape[0] if rows else d.r.choice([1, 2, 3, 5])
    inner = [carry, *(d.values[w] for w in whole), *(_row(d.values[x]) for x in rows)]
    body = d.body(inner, d.r.randint(1, 4), like=carry)
    params = {
        "length": length,
        "whole": len(whole),
        "which": d.r.randrange(2),
        "reverse": d.r.random() < 0.2,
        "checkpoint": d.r.random() < 0.2,
    }
    return Step("transform.scan", (i, *whole, *rows), params, (body,))


def _row(v: Value) -> Value:
    return replace(v, shape=v.shape[1:])


def _scan(context: Any, step: Step, carry: Any, *rest: Any) -> Any:
    p = step.params
    whole, rows = rest[: p["whole"]], rest[p["whole"] :]

    def round_(c: Any, xs: Any) -> Any:
        new = _apply(step.bodies[0], context, c, *whole, *xs)
        return new, c

    body = jax.checkpoint(round_) if p["checkpoint"] else round_
    return lax.scan(body, carry, rows, length=p["length"], reverse=p["reverse"])[p["which"]]


def _while_draw(d: Drawer) -> Step | None:
    i = d.pick(lambda v: v.dtype != "bool")
    n = d.pick(lambda v: is_int(v) and v.exact and v.shape == ())
    if i is None:
        return None
    i = d.tamed(i, 8.0)
    whole = _others(d, 2)
    body = d.body([d.values[i], *(d.values[w] for w in whole)], d.r.randint(1, 4), like=d.values[i])
    count = () if n is None else (n,)
    return Step("transform.while", (i, *whole, *count), {"count": n is not None}, (body,))


def _while(context: Any, step: Step, carry: Any, *rest: Any) -> Any:
    *whole, count = rest if step.params["count"] else (*rest, 3)
    if step.params["count"]:
        count = count % jnp.asarray(4, count.dtype)
    return lax.fori_loop(
        jnp.asarray(0, jnp.result_type(count)), count, lambda k, c: _apply(step.bodies[0], context, c, *whole), carry
    )


def _cond_draw(d: Drawer) -> Step | None:
    i = d.pick()
    p = d.pick(lambda v: v.exact and v.shape == () and (v.dtype == "bool" or is_int(v)))
    if i is None or p is None:
        return None
    inputs = [i, *_others(d, 2)]
    count = 2 if d.values[p].dtype == "bool" else d.r.randint(1, 3)
    bodies = tuple(d.body([d.values[k] for k in inputs], d.r.randint(0, 3), like=d.values[i]) for _ in range(count))
    return Step("transform.cond", (p, *inputs), {}, bodies)


def _cond(context: Any, step: Step, p: Any, *args: Any) -> Any:
    branches = [lambda *a, b=b: _apply(b, context, *a) for b in step.bodies]
    if p.dtype == jnp.bool_:
        return lax.cond(p, *branches, *args)
    return lax.switch(p % jnp.asarray(len(branches), p.dtype), branches, *args)


def _float_inputs(d: Drawer) -> list[int] | None:
    i = d.smooth(lambda v: v.dtype in ("float32", "float64") and v.size > 0)
    return None if i is None else [i, *_others(d, 2)]


def _grad_draw(d: Drawer) -> Step | None:
    inputs = _float_inputs(d)
    if inputs is None:
        return None
    body = d.body(
        [replace(d.values[k], exact=d.values[k].exact and not is_float(d.values[k])) for k in inputs],
        d.r.randint(1, 5),
        like=replace(d.values[inputs[0]], exact=False),
    )
    return Step(
        "transform.grad",
        tuple(inputs),
        {"kind": d.r.choice(["grad", "grad", "jvp", "value_and_grad", "hessian"]), "checkpoint": d.r.random() < 0.3},
        (body,),
    )


def _grad(context: Any, step: Step, x: Any, *rest: Any) -> Any:
    def loss(y: Any) -> Any:
        return jnp.sum(_apply(step.bodies[0], context, y, *rest))

    f = jax.checkpoint(loss) if step.params["checkpoint"] else loss
    kind = step.params["kind"]
    if kind == "jvp":
        return jax.jvp(f, (x,), (jnp.ones_like(x),))[1]
    if kind == "value_and_grad":
        value, slope = jax.value_and_grad(f)(x)
        return value + slope
    if kind == "hessian":
        return jax.jvp(jax.grad(f), (x,), (jnp.ones_like(x),))[1]
    return jax.grad(f)(x)


def _vmap_draw(d: Drawer) -> Step | None:
    i = d.pick(lambda v: len(v.shape) >= 1 and v.shape[0] > 0)
    if i is None:
        return None
    n = d.values[i].shape[0]
    inputs = [i, *_others(d, 2)]
    mapped = tuple(d.values[k].shape[:1] == (n,) and (k == i or d.r.random() < 0.6) for k in inputs)
    inner = [_row(d.values[k]) if m else d.values[k] for k, m in zip(inputs, mapped, strict=True)]
    body = d.body(inner, d.r.randint(1, 5))
    return Step("transform.vmap", tuple(inputs), {"mapped": mapped, "out": 0}, (body,))


def _vmap(context: Any, step: Step, *args: Any) -> Any:
    axes = tuple(0 if m else None for m in step.params["mapped"])
    return jax.vmap(lambda *a: _apply(step.bodies[0], context, *a), in_axes=axes, out_axes=step.params["out"])(*args)


def _jit_draw(d: Drawer) -> Step | None:
    inputs = [d.last() if d.values else 0, *_others(d, 2)]
    body = d.body([d.values[k] for k in inputs], d.r.randint(1, 4))
    return Step("transform.jit", tuple(inputs), {"kind": d.r.choice(["jit", "checkpoint", "map", "inline"])}, (body,))


def _jit(context: Any, step: Step, *args: Any) -> Any:
    def function(*a: Any) -> Any:
        return _apply(step.bodies[0], context, *a)

    kind = step.params["kind"]
    if kind == "map":
        return lax.map(lambda k: function(*args), jnp.arange(2))
    return {"checkpoint": jax.checkpoint, "inline": lambda f: jax.jit(f, inline=True)}.get(kind, jax.jit)(function)(
        *args
    )


def _associative_draw(d: Drawer) -> Step | None:
    i = d.pick(lambda v: v.dtype != "bool" and not v.dtype.startswith("complex") and len(v.shape) >= 1 and v.size > 0)
    if i is None:
        return None
    return Step(
        "transform.associative",
        (d.tamed(i, 4.0),),
        {
            "kind": d.r.choice(["add", "maximum"]),
            "axis": d.r.randrange(len(d.values[i].shape)),
            "reverse": d.r.random() < 0.5,
        },
    )


def _associative(context: Any, step: Step, x: Any) -> Any:
    return lax.associative_scan(
        getattr(jnp, step.params["kind"]), x, axis=step.params["axis"], reverse=step.params["reverse"]
    )


def _shard_map_draw(d: Drawer) -> Step | None:
    mesh = dict(d.context.mesh.shape)
    names = tuple(sorted(d.r.sample(list(mesh), d.r.randint(1, len(mesh)))))
    count = int(np.prod([mesh[n] for n in names]))
    i = d.pick(lambda v: len(v.shape) >= 1 and v.shape[0] % count == 0 and v.shape[0] > 0)
    if i is None:
        return None
    inputs = [i, *_others(d, 2)]
    split = tuple(
        k == i or (len(d.values[k].shape) >= 1 and d.values[k].shape[0] % count == 0 and d.r.random() < 0.5)
        for k in inputs
    )
    inner = [
        replace(d.values[k], shape=(d.values[k].shape[0] // count, *d.values[k].shape[1:])) if s else d.values[k]
        for k, s in zip(inputs, split, strict=True)
    ]
    body = d.body(inner, d.r.randint(1, 5), axes={n: mesh[n] for n in names})
    if not body.steps:
        return None
    return Step("shard_map", tuple(inputs), {"names": names, "split": split}, (body,))


def _shard_map(context: Any, step: Step, *args: Any) -> Any:
    names = step.params["names"]
    whole, part = jax.sharding.PartitionSpec(), jax.sharding.PartitionSpec(names)

    def body(*a: Any) -> Any:
        got = _apply(step.bodies[0], context, *a)
        return got if got.ndim else got[None]

    def replicated(x: Any) -> Any:
        sharding = jax.sharding.NamedSharding(context.mesh, whole)
        return lax.with_sharding_constraint(x, sharding) if context.whole else x

    specs = tuple(part if s else whole for s in step.params["split"])
    mapped = jax.shard_map(
        body, mesh=context.mesh, in_specs=specs, out_specs=part, axis_names=set(names), check_vma=False
    )
    return replicated(mapped(*map(replicated, args)))


def _collective(name: str, function: Callable[..., Any], fits: Callable[[Value, int], bool], grows: bool = False) -> Op:
    def draw(d: Drawer) -> Step | None:
        axis = d.r.choice(list(d.axes))
        size = d.axes[axis]
        i = d.pick(lambda v: v.dtype != "bool" and fits(v, size))
        return None if i is None else Step(f"collective.{name}", (i,), {"axis": axis, "size": size})

    def result(values: list[Value], step: Step) -> tuple[bool, float]:
        return values[0].exact, values[0].bound * (step.params["size"] if grows else 1)

    return Op(draw, lambda c, s, x: function(x, s.params["axis"], s.params["size"]), result)


def _real(v: Value, size: int) -> bool:
    return not v.dtype.startswith("complex")


def _divisible(v: Value, size: int) -> bool:
    return len(v.shape) >= 1 and v.shape[0] % size == 0 and v.size > 0


def _index_draw(d: Drawer) -> Step:
    axis = d.r.choice(list(d.axes))
    return Step("collective.index", (), {"axis": axis, "size": d.axes[axis]})


COLLECTIVES: dict[str, Op] = {
    "collective.psum": _collective("psum", lambda x, a, n: lax.psum(x, a), lambda v, n: True, grows=True),
    "collective.pmax": _collective("pmax", lambda x, a, n: lax.pmax(x, a), _real),
    "collective.all_gather": _collective("all_gather", lambda x, a, n: lax.all_gather(x, a, tiled=x.ndim > 0), lambda v, n: True),
    "collective.psum_scatter": _collective("psum_scatter", lambda x, a, n: lax.psum_scatter(x, a, tiled=True), _divisible, grows=True),
    "collective.ppermute": _collective("ppermute", lambda x, a, n: lax.ppermute(x, a, [(k, (k + 1) % n) for k in range(n)]), lambda v, n: True),
    "collective.shift": _collective("shift", lambda x, a, n: lax.ppermute(x, a, [(k, k + 1) for k in range(n - 1)]), lambda v, n: True),
    "collective.all_to_all": _collective("all_to_all", lambda x, a, n: lax.all_to_all(x, a, 0, x.ndim - 1, tiled=True), _divisible),
    "collective.index": Op(_index_draw, lambda c, s: lax.axis_index(s.params["axis"]), lambda v, s: (True, 16.0)),
}  # fmt: skip


def _from_body(values: list[Value], step: Step) -> tuple[bool, float]:
    """As exact as what the bodies give; how large is not known."""
    return all(b.exact for b in step.bodies), max(b.bound for b in step.bodies)


def _like_first(at: int) -> Callable[[list[Value], Step], tuple[bool, float]]:
    return lambda values, step: (values[at].exact, values[at].bound)


TABLE: dict[str, Op] = {
    **OPS,
    **COLLECTIVES,
    "transform.scan": Op(_loop_draw, _scan, _like_first(0)),
    "transform.while": Op(_while_draw, _while, _like_first(0)),
    "transform.cond": Op(_cond_draw, _cond, _like_first(1)),
    "transform.grad": Op(_grad_draw, _grad, lambda v, s: (False, 1e6)),
    "transform.vmap": Op(_vmap_draw, _vmap, _from_body),
    "transform.jit": Op(_jit_draw, _jit, _from_body),
    "transform.associative": Op(_associative_draw, _associative, lambda v, s: (v[0].exact, v[0].bound * max(1, v[0].size))),
    "shard_map": Op(_shard_map_draw, _shard_map, _from_body),
}  # fmt: skip
