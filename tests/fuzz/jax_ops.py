# ruff: noqa: E501, PLW0108
"""The operations that random JAX programs are made of, by kind; others are in the files beside this one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax_drawer import NARROW, SIZES, WIDE, Drawer, draw_spec
from jax_indexing import INDEXING
from jax_rows import (
    binary,
    broadcasts,
    exactly,
    full,
    is_complex,
    keep,
    numeric,
    ranked,
    real,
    rounded,
    shaped,
    smooth,
    unary,
)
from jax_terms import Op, Step, Value, is_float, is_int
from jax_windows import WINDOWS

__all__ = ["OPS"]


def _sums(values: list[Value], step: Step) -> tuple[bool, float]:
    return all(v.exact for v in values), sum(v.bound for v in values)


def _products(values: list[Value], step: Step) -> tuple[bool, float]:
    return all(v.exact for v in values), 2 * values[0].bound * values[1].bound


def _over_all(values: list[Value], step: Step) -> tuple[bool, float]:
    return values[0].exact, max(1.0, values[0].bound * max(1, values[0].size))


def _tame(x: Any, limit: float) -> Any:
    if jnp.iscomplexobj(x):
        return lax.complex(jnp.clip(x.real, -limit, limit), jnp.clip(x.imag, -limit, limit))
    top = (
        jnp.asarray(limit, x.dtype)
        if not jnp.issubdtype(x.dtype, jnp.integer)
        else jnp.asarray(min(limit, jnp.iinfo(x.dtype).max), x.dtype)
    )
    low = 0 * top if jnp.issubdtype(x.dtype, jnp.unsignedinteger) else -top
    return jnp.clip(x, low, top)


def _axes(r: Any, v: Value) -> tuple[int, ...]:
    return tuple(sorted(r.sample(range(len(v.shape)), r.randint(1, len(v.shape)))))


def _axis(r: Any, d: Drawer, v: Value) -> dict[str, Any]:
    return {"axis": r.randrange(len(v.shape))}


def _reduction(function: Callable[..., Any], fits: Callable[[Value], bool], result: Any = keep) -> Op:
    def draw(r: Any, d: Drawer, v: Value) -> dict[str, Any]:
        return {"axis": _axes(r, v), "keepdims": r.random() < 0.3}

    return shaped(draw, function, lambda v: full(v) and fits(v), result)


def _cast_draw(d: Drawer) -> Step | None:
    i = d.pick()
    assert i is not None
    to = d.r.choice(WIDE if d.x64 else NARROW)
    v = d.values[i]
    if v.dtype.startswith("complex") and not to.startswith("complex"):
        return None
    if not v.exact and not to.startswith(("float", "bfloat", "complex")):
        return None
    signed = v.dtype.startswith("u") or not to.startswith("u")
    if not signed and not is_int(v):
        return None
    return Step("cast", (d.tamed(i, 100.0) if to != "bool" else i,), {"to": to})


def _cast(context: Any, step: Step, x: Any) -> Any:
    return x.astype(context.dtype(step.params["to"]))


def _cast_result(values: list[Value], step: Step) -> tuple[bool, float]:
    wraps = step.params["to"].startswith("u") and not values[0].dtype.startswith("u")
    return values[0].exact, 1.0 if step.params["to"] == "bool" else 2.0**32 if wraps else values[0].bound


def _reshape_draw(r: Any, d: Drawer, v: Value) -> dict[str, Any] | None:
    left, shape = v.size, []
    if not left:
        return None
    for _ in range(r.randint(0, 3)):
        n = r.choice([k for k in range(1, left + 1) if left % k == 0])
        shape.append(n)
        left //= n
    shape.insert(r.randint(0, len(shape)), left)
    return {"shape": tuple(shape)}


def _slice_draw(r: Any, d: Drawer, v: Value) -> dict[str, Any]:
    cuts = []
    for n in v.shape:
        a, b = sorted((r.randint(0, n), r.randint(0, n)))
        cuts.append((a, max(b, min(n, a + 1)), r.choice([1, 1, 1, 2, 3])) if r.random() < 0.6 else (0, n, 1))
    return {"cuts": tuple(cuts), "back": r.random() < 0.2}


def _slice(x: Any, cuts: Any, back: bool) -> Any:
    return x[
        tuple(slice(b - 1, None if a == 0 else a - 1, -s) if back and b > a else slice(a, b, s) for a, b, s in cuts)
    ]


def _pad_draw(r: Any, d: Drawer, v: Value) -> dict[str, Any]:
    return {
        "config": tuple(
            (
                r.randint(-1, 3) if n > 2 else r.randint(0, 2),
                r.randint(-1, 3) if n > 2 else r.randint(0, 2),
                r.choice([0, 0, 0, 1, 2]),
            )
            for n in v.shape
        )
    }


def _where_draw(d: Drawer) -> Step | None:
    p = d.pick(lambda v: v.dtype == "bool" and v.exact)
    i = d.pick(numeric)
    if p is None or i is None:
        return None
    a = d.values[i]
    j = d.pick(lambda b: b.dtype == a.dtype and broadcasts(a.shape, b.shape))
    if j is None or not broadcasts(np.broadcast_shapes(a.shape, d.values[j].shape), d.values[p].shape):
        return None
    return Step("where", (p, i, j))


def _where_result(values: list[Value], step: Step) -> tuple[bool, float]:
    return keep(values[1:], step)


def _join_draw(d: Drawer) -> Step | None:
    i = d.pick(ranked(1))
    if i is None:
        return None
    a = d.values[i]
    axis = d.r.randrange(len(a.shape))
    found = [i]
    for _ in range(d.r.randint(1, 3)):
        j = d.pick(
            lambda b: (
                b.dtype == a.dtype
                and len(b.shape) == len(a.shape)
                and all(m == n or k == axis for k, (m, n) in enumerate(zip(a.shape, b.shape, strict=True)))
            )
        )
        found.append(i if j is None else j)
    return Step("join", tuple(found), {"axis": axis})


def _stack_draw(d: Drawer) -> Step | None:
    i = d.pick()
    assert i is not None
    a = d.values[i]
    j = d.pick(lambda b: b.like(a))
    return Step("stack", (i, i if j is None else j), {"axis": d.r.randint(0, len(a.shape))})


def _einsum_draw(d: Drawer) -> Step | None:
    i = d.pick(lambda v: numeric(v) and len(v.shape) >= 1)
    if i is None:
        return None
    a = d.values[i]
    j = d.pick(lambda b: b.dtype == a.dtype and bool(set(a.shape) & set(b.shape)))
    if j is None:
        return None
    b = d.values[j]
    first = "abcdefghij"[: len(a.shape)]
    second = list("qrstuvwxyz"[: len(b.shape)])
    used = set()
    for k, n in enumerate(b.shape):
        same = [c for c, m in zip(first, a.shape, strict=True) if m == n and c not in used]
        if same and d.r.random() < 0.7:
            second[k] = d.r.choice(same)
            used.add(second[k])
    out = [c for c in dict.fromkeys((*first, *second)) if not (c in first and c in second) or d.r.random() < 0.25]
    d.r.shuffle(out)
    limit = 4.0
    return Step(
        "einsum", (d.tamed(i, limit), d.tamed(j, limit)), {"spec": f"{first},{''.join(second)}->{''.join(out)}"}
    )


def _einsum(context: Any, step: Step, x: Any, y: Any) -> Any:
    return jnp.einsum(step.params["spec"], x, y)


def _einsum_result(values: list[Value], step: Step) -> tuple[bool, float]:
    return all(v.exact for v in values), 2 * values[0].bound * values[1].bound * max(values[0].size, values[1].size, 1)


def _sort_pair_draw(d: Drawer) -> Step | None:
    i = d.pick(lambda v: full(v) and v.exact and real(v))
    if i is None:
        return None
    j = d.pick(lambda v: v.shape == d.values[i].shape)
    assert j is not None
    return Step("sort_pair", (i, j), {"axis": d.r.randrange(len(d.values[i].shape)), "which": d.r.randrange(2)})


def _sort_pair(context: Any, step: Step, x: Any, y: Any) -> Any:
    return lax.sort((x, y), dimension=step.params["axis"], num_keys=1, is_stable=True)[step.params["which"]]


def _pair_result(values: list[Value], step: Step) -> tuple[bool, float]:
    return keep([values[step.params["which"]]], step)


def _top_draw(r: Any, d: Drawer, v: Value) -> dict[str, Any]:
    return {"k": r.randint(1, v.shape[-1]), "which": r.randrange(2) if v.exact else 0}


def _top_result(values: list[Value], step: Step) -> tuple[bool, float]:
    return keep(values, step) if step.params["which"] == 0 else (True, 4096.0)


def _random_draw(d: Drawer) -> Step:
    shape = tuple(d.r.choice(SIZES) for _ in range(d.r.randint(0, 3)))
    return Step(
        "random",
        (),
        {
            "seed": d.r.randrange(100),
            "shape": shape,
            "kind": d.r.choice(["bits", "randint", "normal", "uniform", "bernoulli", "permutation"]),
        },
    )


def _random(context: Any, step: Step) -> Any:
    key, shape, kind = jax.random.key(step.params["seed"]), step.params["shape"], step.params["kind"]
    if kind == "randint":
        return jax.random.randint(key, shape, -5, 9, "int32")
    if kind == "bernoulli":
        return jax.random.bernoulli(key, 0.5, shape)
    if kind == "permutation":
        return jax.random.permutation(key, 12)
    if kind == "bits":
        return jax.random.bits(key, shape, "uint32")
    return getattr(jax.random, kind)(key, shape, "float32").astype(context.dtype("float32"))


def _random_result(values: list[Value], step: Step) -> tuple[bool, float]:
    kind = step.params["kind"]
    return kind not in ("normal", "uniform"), {"bits": 2.0**32, "permutation": 12.0}.get(kind, 9.0)


def _iota_draw(d: Drawer) -> Step:
    shape = tuple(d.r.choice(SIZES) for _ in range(d.r.randint(1, 3)))
    return Step(
        "iota",
        (),
        {"shape": shape, "axis": d.r.randrange(len(shape)), "dtype": d.r.choice(["int32", "float32", "uint8"])},
    )


def _iota(context: Any, step: Step) -> Any:
    return lax.broadcasted_iota(context.dtype(step.params["dtype"]), step.params["shape"], step.params["axis"])


def _constraint_draw(d: Drawer) -> Step | None:
    i = d.pick(ranked(1))
    if i is None:
        return None
    mesh = dict(d.context.mesh.shape)
    return Step("constraint", (i,), {"spec": draw_spec(d.r, d.values[i].shape, mesh, even=True)})


def _constraint(context: Any, step: Step, x: Any) -> Any:
    if context.whole:
        return x
    spec = jax.sharding.PartitionSpec(*step.params["spec"])
    return lax.with_sharding_constraint(x, jax.sharding.NamedSharding(context.mesh, spec))


def _solve_draw(name: str) -> Callable[[Drawer], Step | None]:
    def draw(d: Drawer) -> Step | None:
        i = d.smooth(
            lambda v: (
                v.dtype in ("float32", "float64")
                and len(v.shape) >= 2
                and 0 < v.shape[-2] <= 8
                and 0 < v.shape[-1] <= 8
            )
        )
        return None if i is None else Step(name, (i,))

    return draw


def _well(x: Any) -> Any:
    """A symmetric matrix with a small condition number."""
    n = x.shape[-2]
    return x @ jnp.swapaxes(x, -1, -2) + (1 + 16 * x.shape[-1]) * jnp.eye(n, dtype=x.dtype)


def _fft_draw(d: Drawer) -> Step | None:
    i = d.smooth(lambda v: v.dtype in ("float32", "float64") and full(v))
    return (
        None
        if i is None
        else Step("fft", (i,), {"axis": d.r.randrange(len(d.values[i].shape)), "back": d.r.random() < 0.5})
    )


def _fft(context: Any, step: Step, x: Any) -> Any:
    got = jnp.fft.fft(x, axis=step.params["axis"])
    return jnp.fft.ifft(got, axis=step.params["axis"]).real if step.params["back"] else jnp.abs(got)


def _mix(context: Any, step: Step, x: Any, y: Any) -> Any:
    return x + jnp.sum(y).astype(x.dtype)


def _mix_result(values: list[Value], step: Step) -> tuple[bool, float]:
    return all(v.exact for v in values), values[0].bound + values[1].bound * max(1, values[1].size)


def exact_real(v: Value) -> bool:
    return v.exact and real(v)


ELEMENTWISE: dict[str, Op] = {
    "tame": Op(lambda d: None, lambda c, s, x: _tame(x, s.params["limit"]), lambda v, s: (v[0].exact, s.params["limit"])),
    "mix": Op(lambda d: None, _mix, _mix_result),
    "cast": Op(_cast_draw, _cast, _cast_result),
    "negate": unary(jnp.negative, numeric),
    "abs": unary(jnp.abs, real),
    "sign": unary(jnp.sign, exact_real),
    "square": unary(jnp.square, numeric, lambda v, s: (v[0].exact, 2 * v[0].bound**2), 32),
    "invert": unary(jnp.invert, lambda v: is_int(v) or v.dtype == "bool", lambda v, s: (v[0].exact, v[0].bound + 1)),
    "popcount": unary(lax.population_count, is_int, exactly(64)),
    "conjugate": unary(jnp.conj, is_complex),
    "real": unary(jnp.real, is_complex),
    "isfinite": unary(jnp.isfinite, is_float, exactly(1)),
    "halves": unary(lambda x: jnp.floor(x / 2), lambda v: is_float(v) and v.exact),
    "tanh": smooth(jnp.tanh, 1),
    "sin": smooth(jnp.sin, 1),
    "exp": smooth(jnp.exp, 64),
    "log1p": smooth(lambda x: jnp.log1p(jnp.abs(x)), 2),
    "sqrt": smooth(lambda x: jnp.sqrt(1 + x * x), 5),
    "rsqrt": smooth(lambda x: lax.rsqrt(1 + x * x), 1),
    "logistic": smooth(jax.nn.sigmoid, 1),
    "gelu": smooth(jax.nn.gelu, 4),
    "erf": smooth(lax.erf, 1),
    "atan2": binary(lambda x, y: jnp.arctan2(x, 1 + jnp.abs(y)), is_float, rounded(4)),
    "divide": binary(lambda x, y: x / (1 + y * y), is_float, rounded(16), 16),
    "add": binary(jnp.add, numeric, _sums),
    "subtract": binary(jnp.subtract, numeric, _sums),
    "multiply": binary(jnp.multiply, numeric, _products, 64),
    "maximum": binary(jnp.maximum, real),
    "minimum": binary(jnp.minimum, real),
    "remainder": binary(lambda x, y: lax.rem(x, jnp.where(y == 0, jnp.ones_like(y), y)), lambda v: is_int(v)),
    "floor_divide": binary(lambda x, y: x // jnp.where(y == 0, jnp.ones_like(y), y), lambda v: is_int(v), lambda v, s: (True, v[0].bound + 1), 100),
    "xor": binary(jnp.bitwise_xor, lambda v: is_int(v) or v.dtype == "bool", lambda v, s: (True, 2.0**32)),
    "shift": binary(lambda x, y: x << (y & jnp.asarray(3, y.dtype)), is_int, lambda v, s: (True, v[0].bound * 8)),
    "less": binary(jnp.less, exact_real, exactly(1)),
    "equal": binary(jnp.equal, lambda v: v.exact, exactly(1)),
    "where": Op(_where_draw, lambda c, s, p, x, y: jnp.where(p, x, y), _where_result),
}  # fmt: skip

SHAPES: dict[str, Op] = {
    "reshape": shaped(_reshape_draw, lambda x, shape: x.reshape(shape), ranked(0)),
    "transpose": shaped(lambda r, d, v: {"axes": tuple(r.sample(range(len(v.shape)), len(v.shape)))}, jnp.transpose),
    "broadcast": shaped(lambda r, d, v: {"n": r.choice(SIZES), "axis": r.randint(0, len(v.shape))}, lambda x, n, axis: jnp.repeat(jnp.expand_dims(x, axis), n, axis), ranked(0)),
    "tile": shaped(lambda r, d, v: {"reps": tuple(r.choice([1, 2, 3]) for _ in v.shape)}, lambda x, reps: jnp.tile(x, reps)),
    "flip": shaped(_axis, lambda x, axis: jnp.flip(x, axis)),
    "roll": shaped(lambda r, d, v: {"shift": r.randint(-5, 5), **_axis(r, d, v)}, lambda x, shift, axis: jnp.roll(x, shift, axis)),
    "slice": shaped(_slice_draw, _slice),
    "pad": shaped(_pad_draw, lambda x, config: lax.pad(x, jnp.asarray(1, x.dtype), config)),
    "tril": shaped(lambda r, d, v: {"k": r.randint(-2, 2)}, lambda x, k: jnp.tril(x, k), ranked(2)),
    "diagonal": shaped(lambda r, d, v: {"offset": r.randint(-1, 1)}, lambda x, offset: jnp.diagonal(x, offset), ranked(2)),
    "split": shaped(lambda r, d, v: {"at": r.randint(0, v.shape[-1])}, lambda x, at: jnp.split(x, [at], -1)[0]),
    "join": Op(_join_draw, lambda c, s, *xs: jnp.concatenate(xs, s.params["axis"]), keep),
    "stack": Op(_stack_draw, lambda c, s, *xs: jnp.stack(xs, s.params["axis"]), keep),
    "iota": Op(_iota_draw, _iota, exactly(16)),
    "random": Op(_random_draw, _random, _random_result),
    "constraint": Op(_constraint_draw, _constraint, keep),
}  # fmt: skip

REDUCTIONS: dict[str, Op] = {
    "sum": _reduction(jnp.sum, numeric, _over_all),
    "max": _reduction(jnp.max, real),
    "min": _reduction(jnp.min, real),
    "any": _reduction(jnp.any, lambda v: v.exact, exactly(1)),
    "all": _reduction(jnp.all, lambda v: v.exact, exactly(1)),
    "mean": _reduction(jnp.mean, is_float, lambda v, s: (False, v[0].bound)),
    "var": _reduction(jnp.var, lambda v: is_float(v) and v.bound <= 64, lambda v, s: (False, 4 * v[0].bound ** 2)),
    "argmax": shaped(_axis, lambda x, axis: jnp.argmax(x, axis), lambda v: full(v) and exact_real(v), exactly(4096)),
    "argmin": shaped(_axis, lambda x, axis: jnp.argmin(x, axis), lambda v: full(v) and exact_real(v), exactly(4096)),
    "cumsum": shaped(_axis, lambda x, axis: jnp.cumsum(x, axis), lambda v: full(v) and numeric(v), _over_all),
    "cummax": shaped(_axis, lambda x, axis: lax.cummax(x, axis), lambda v: full(v) and real(v)),
    "softmax": shaped(_axis, lambda x, axis: jax.nn.softmax(x, axis), lambda v: full(v) and is_float(v) and v.bound <= 64, rounded(1)),
    "logsumexp": shaped(_axis, lambda x, axis: jax.nn.logsumexp(x, axis), lambda v: full(v) and is_float(v) and v.bound <= 64, rounded(80)),
    "norm": shaped(_axis, lambda x, axis: x * lax.rsqrt(jnp.mean(x * x, axis, keepdims=True) + 1), lambda v: full(v) and is_float(v) and v.bound <= 64, rounded(64)),
    "sort": shaped(_axis, lambda x, axis: jnp.sort(x, axis), lambda v: full(v) and real(v)),
    "argsort": shaped(_axis, lambda x, axis: jnp.argsort(x, axis), lambda v: full(v) and exact_real(v), exactly(4096)),
    "top_k": shaped(_top_draw, lambda x, k, which: lax.top_k(x, k)[which], lambda v: full(v) and real(v), _top_result),
    "unique": shaped(lambda r, d, v: {"size": r.choice(SIZES)}, lambda x, size: jnp.unique(x, size=size, fill_value=0), lambda v: full(v) and exact_real(v)),
    "sort_pair": Op(_sort_pair_draw, _sort_pair, _pair_result),
}  # fmt: skip


CONTRACTIONS: dict[str, Op] = {
    "einsum": Op(_einsum_draw, _einsum, _einsum_result),
    "fft": Op(_fft_draw, _fft, lambda v, s: (False, v[0].bound * max(1, v[0].size))),
    "cholesky": Op(_solve_draw("cholesky"), lambda c, s, x: jnp.linalg.cholesky(_well(x)), rounded(2000)),
    "solve": Op(_solve_draw("solve"), lambda c, s, x: jnp.linalg.solve(_well(x), x), rounded(4)),
    "triangular": Op(_solve_draw("triangular"), lambda c, s, x: lax.linalg.triangular_solve(_well(x), x, left_side=True, lower=True), rounded(4)),
}  # fmt: skip

OPS: dict[str, Op] = {**ELEMENTWISE, **SHAPES, **REDUCTIONS, **INDEXING, **CONTRACTIONS, **WINDOWS}
