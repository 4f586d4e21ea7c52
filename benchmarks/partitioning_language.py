"""Language models of the comparison with XLA's partitioner: attention in its variants, experts, losses, decoding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec
from partitioning_programs import Made, Places, Program

__all__ = ["LANGUAGE"]


def _rms(x: Any, scale: Any) -> Any:
    return x * lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + 1e-5) * scale


def _rotate(x: Any) -> Any:
    """Rotary positions over [batch, length, ..., width]."""
    half = x.shape[-1] // 2
    angle = jnp.arange(x.shape[1])[:, None] / 100.0 ** (jnp.arange(half) / half)
    angle = angle.reshape(1, x.shape[1], *(1,) * (x.ndim - 3), half)
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * jnp.cos(angle) - b * jnp.sin(angle), a * jnp.sin(angle) + b * jnp.cos(angle)], -1)


def _descend(w: Any, g: Any) -> Any:
    return jax.tree.map(lambda w, g: w - 0.1 * g, w, g)


# -- grouped queries, rotary positions, RMS norm, gated perceptron ----------------------------------------------------


def _llama_shapes(d: int, groups: int, per: int, width: int, hidden: int) -> dict[str, tuple[int, ...]]:
    return {
        "norm1": (d,),
        "norm2": (d,),
        "q": (d, groups, per, width),
        "k": (d, groups, width),
        "v": (d, groups, width),
        "o": (groups, per, width, d),
        "gate": (d, hidden),
        "up": (d, hidden),
        "down": (hidden, d),
    }


def _llama_block(x: Any, w: Any) -> Any:
    h = _rms(x, w["norm1"])
    q = _rotate(jnp.einsum("btd,dgqe->btgqe", h, w["q"]))
    k = _rotate(jnp.einsum("btd,dge->btge", h, w["k"]))
    v = jnp.einsum("btd,dge->btge", h, w["v"])
    s = jnp.einsum("btgqe,bsge->bgqts", q, k) / np.sqrt(q.shape[-1])
    causal = jnp.arange(x.shape[1])[:, None] >= jnp.arange(x.shape[1])[None]
    a = jax.nn.softmax(jnp.where(causal, s, -1e30), -1)
    x = x + jnp.einsum("btgqe,gqed->btd", jnp.einsum("bgqts,bsge->btgqe", a, v), w["o"])
    h = _rms(x, w["norm2"])
    return x + (jax.nn.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"]


def _llama(
    specs: dict[str, tuple[Any, ...]], batch: Any, groups: int = 4, *, annotated: str = "both", length: Any = None
) -> Callable[[Places], Made]:
    """A training step of one block; ``annotated``: inputs, outputs, both, or by in_shardings (jit)."""

    def make(at: Places) -> Made:
        shapes = _llama_shapes(48, groups, 8 // groups, 8, 96)

        def step(w: Any, x: Any) -> Any:
            def loss(w: Any) -> Any:
                return jnp.mean(jnp.square(_llama_block(x, w)) * x)

            value, g = jax.value_and_grad(loss)(w)
            return value, _descend(w, g)

        places = {n: at(*specs.get(n, ())) for n in shapes}
        if annotated in ("jit", "outputs"):
            w = {n: jax.ShapeDtypeStruct(s, np.float32) for n, s in shapes.items()}
            x = jax.ShapeDtypeStruct((8, 24, 48), np.float32)
            given = (places, at(batch, length)) if annotated == "jit" else None
            if given is None:
                return jax.jit(step, out_shardings=(at(), places)), (w, at.array(x.shape, batch, length))
            return jax.jit(step, in_shardings=given, out_shardings=(at(), places)), (w, x)
        w = {n: at.array(s, *specs.get(n, ())) for n, s in shapes.items()}
        outs = None if annotated == "inputs" else (at(), places)
        return jax.jit(step, out_shardings=outs), (w, at.array((8, 24, 48), batch, length))

    return make


def _tensor(axis: Any) -> dict[str, tuple[Any, ...]]:
    out: dict[str, tuple[Any, ...]] = dict.fromkeys(("q", "k", "v", "gate", "up"), (None, axis))
    return {**out, "o": (axis,), "down": (axis,)}


def _both(full: Any, axis: Any) -> dict[str, tuple[Any, ...]]:
    out: dict[str, tuple[Any, ...]] = dict.fromkeys(("q", "k", "v", "gate", "up"), (full, axis))
    return {**out, "o": (axis, None, None, full), "down": (axis, full), "norm1": (full,), "norm2": (full,)}


_MULTI_QUERY = {"q": (None, None, "x"), "o": (None, "x"), "gate": (None, "x"), "up": (None, "x"), "down": ("x",)}


# -- attention in pieces ----------------------------------------------------------------------------------------------


def _chunked(at: Places) -> Made:
    """Attention over keys in chunks with a running maximum; queries split along the sequence."""

    def f(q: Any, k: Any, v: Any) -> Any:
        def one(c: Any, kv: Any) -> Any:
            top, total, out = c
            k, v = kv
            s = jnp.einsum("bqhe,bkhe->bhqk", q, k)
            new = jnp.maximum(top, s.max(-1))
            p, scale = jnp.exp(s - new[..., None]), jnp.exp(top - new)
            out = out * scale[..., None] + jnp.einsum("bhqk,bkhe->bhqe", p, v)
            return (new, total * scale + p.sum(-1), out), None

        b, n, h, e = q.shape
        start = (jnp.full((b, h, n), -jnp.inf), jnp.zeros((b, h, n)), jnp.zeros((b, h, n, e)))
        pieces = [jnp.moveaxis(a.reshape(b, 4, n // 4, h, e), 1, 0) for a in (k, v)]
        (_, total, out), _ = lax.scan(one, start, tuple(pieces))
        return jnp.swapaxes(out / total[..., None], 1, 2)

    whole = at.array((2, 64, 4, 8), "x")
    return jax.jit(f, out_shardings=at("x", "y")), (at.array((2, 64, 4, 8), "x", "y"), whole, whole)


def _exchange_heads(at: Places) -> Made:
    """Sequence-parallel outside attention, head-parallel inside: two all-to-alls."""

    def f(x: Any, w: Any) -> Any:
        q, k, v = (at.shard(jnp.einsum("btd,dhe->bthe", x, w[n]), None, None, "x") for n in range(3))
        a = jax.nn.softmax(jnp.einsum("bthe,bshe->bhts", q, k), -1)
        out = at.shard(jnp.einsum("bhts,bshe->bthe", a, v), None, "x")
        return jnp.einsum("bthe,hed->btd", out, w[3].transpose(1, 2, 0))

    return jax.jit(f, out_shardings=at(None, "x")), (at.array((2, 64, 32), None, "x"), at.array((4, 32, 8, 8)))


def _local_attention(at: Places) -> Made:
    """Blocks attend to themselves and the block before; the sequence is split."""

    def f(q: Any, k: Any, v: Any) -> Any:
        def blocks(a: Any) -> Any:
            return a.reshape(a.shape[0], 16, 8, a.shape[-1])

        def before(a: Any) -> Any:
            return jnp.concatenate([jnp.roll(a, 1, 1), a], 2)

        q, k, v = blocks(q), before(blocks(k)), before(blocks(v))
        a = jax.nn.softmax(jnp.einsum("bnqe,bnke->bnqk", q, k), -1)
        return jnp.einsum("bnqk,bnke->bnqe", a, v).reshape(2, 128, -1)

    part = at.array((2, 128, 16), None, "x")
    return jax.jit(f, out_shardings=at(None, "x")), (part, part, part)


def _ring_training(at: Places) -> Made:
    """Ring attention and its gradient, batch split too."""

    def local(q: Any, k: Any, v: Any) -> Any:
        n = lax.axis_size("y")

        def one(c: Any, _: Any) -> Any:
            k, v, total, out = c
            p = jnp.exp(jnp.einsum("bqe,bke->bqk", q, k))
            out = out + jnp.einsum("bqk,bke->bqe", p, v)
            ring = [(i, (i + 1) % n) for i in range(n)]
            k, v = lax.ppermute((k, v), "y", ring)
            return (k, v, total + p.sum(-1), out), None

        total, out = lax.scan(one, (k, v, q[..., 0] * 0, q * 0), None, length=n)[0][2:]
        return out / total[..., None]

    spec = PartitionSpec("x", "y")
    ring = jax.shard_map(local, mesh=at.mesh, in_specs=(spec,) * 3, out_specs=spec)

    def step(w: Any, x: Any) -> Any:
        value, g = jax.value_and_grad(lambda w: jnp.mean(ring(*(x @ w[i] for i in range(3))) ** 2))(w)
        return value, w - 0.1 * g

    return jax.jit(step, out_shardings=(at(), at())), (at.array((3, 16, 16)), at.array((8, 32, 16), "x", "y"))


def _state_space(at: Places) -> Made:
    """A gated linear recurrence by an associative scan along a split sequence."""

    def f(x: Any, a: Any, w: Any) -> Any:
        gate = jax.nn.sigmoid(x @ a)

        def join(l: Any, r: Any) -> Any:
            return l[0] * r[0], l[1] * r[0] + r[1]

        return lax.associative_scan(join, (gate, x * (1 - gate)), axis=1)[1] @ w

    square = at.array((16, 16))
    return jax.jit(f, out_shardings=at("x", "y")), (at.array((4, 64, 16), "x", "y"), square, square)


# -- losses -----------------------------------------------------------------------------------------------------------


def _head(hot: bool) -> Callable[[Places], Made]:
    """Cross entropy over logits split by vocabulary; labels by one-hot or by look-up."""

    def make(at: Places) -> Made:
        def step(w: Any, h: Any, labels: Any) -> Any:
            def loss(w: Any, h: Any) -> Any:
                logits = at.shard(h @ w, "x", None, "y")
                if hot:
                    picked = jnp.sum(jax.nn.log_softmax(logits, -1) * jax.nn.one_hot(labels, w.shape[1]), -1)
                    return -jnp.mean(picked)
                top = lax.stop_gradient(logits.max(-1, keepdims=True))
                total = jnp.log(jnp.sum(jnp.exp(logits - top), -1)) + top[..., 0]
                return jnp.mean(total - jnp.take_along_axis(logits, labels[..., None], -1)[..., 0])

            value, (gw, gh) = jax.value_and_grad(loss, (0, 1))(w, h)
            return value, w - gw, gh

        args = (at.array((32, 512), None, "y"), at.array((8, 16, 32), "x"), at.array((8, 16), "x", dtype=np.int32))
        return jax.jit(step, out_shardings=(at(), at(None, "y"), at("x"))), args

    return make


def _masked(at: Places) -> Made:
    """Masked language modelling: layer norm with bias, dropout, padding masked; data-parallel."""

    def step(w: Any, tokens: Any, key: Any) -> Any:
        def loss(w: Any) -> Any:
            real = tokens > 0
            h = w["table"][tokens]
            h = h * jax.random.bernoulli(key, 0.9, h.shape) / 0.9
            mean = h.mean(-1, keepdims=True)
            h = (h - mean) / jnp.sqrt(jnp.var(h, -1, keepdims=True) + 1e-5) * w["scale"] + w["bias"]
            s = jnp.where(real[:, None], jnp.einsum("btd,bsd->bts", h, h), -1e9)
            h = h + jax.nn.softmax(s, -1) @ h
            logp = jax.nn.log_softmax(h @ w["table"].T)
            nll = -jnp.take_along_axis(logp, tokens[..., None], -1)[..., 0]
            return jnp.sum(jnp.where(real, nll, 0)) / jnp.sum(real)

        value, g = jax.value_and_grad(loss)(w)
        return value, _descend(w, g)

    w = {"table": at.array((64, 32)), "scale": at.array((32,)), "bias": at.array((32,))}
    args = (w, at.array((16, 16), "x", dtype=np.int32), at.array((2,), dtype=np.uint32))
    return jax.jit(step, out_shardings=(at(), {n: at() for n in w})), args


def _contrast(at: Places) -> Made:
    """A contrastive loss: every text of the batch against every image."""

    def step(w: Any, a: Any, b: Any) -> Any:
        def loss(w: Any) -> Any:
            u, v = a @ w["a"], b @ w["b"]
            u, v = (h / jnp.linalg.norm(h, axis=-1, keepdims=True) for h in (u, v))
            logits = 10 * u @ v.T
            same = jnp.diagonal(logits)
            return jnp.mean(jax.nn.logsumexp(logits, 0) + jax.nn.logsumexp(logits, 1) - 2 * same)

        value, g = jax.value_and_grad(loss)(w)
        return value, _descend(w, g)

    w = {"a": at.array((32, 16)), "b": at.array((24, 16))}
    args = (w, at.array((64, 32), "x"), at.array((64, 24), "x"))
    return jax.jit(step, out_shardings=(at(), {n: at() for n in w})), args


# -- experts ----------------------------------------------------------------------------------------------------------


def _two_experts(training: bool) -> Callable[[Places], Made]:
    """The best two of the experts with a capacity, by one-hot products; experts split over ``y``."""

    def make(at: Places) -> Made:
        def f(w: Any, x: Any) -> Any:
            p = jax.nn.softmax(x @ w["gate"], -1)
            out = 0.0
            filled = jnp.zeros((x.shape[0], 1, 8))
            for _ in range(2):
                best = jax.nn.one_hot(jnp.argmax(p, -1), 8)
                place = (jnp.cumsum(best, 1) - 1 + filled) * best
                filled = filled + best.sum(1, keepdims=True)
                slot = jax.nn.one_hot(jnp.sum(place, -1).astype(np.int32), 12)
                mask = best[..., None] * slot[:, :, None]
                h = at.shard(jnp.einsum("gtec,gtd->gecd", mask, x), "x", "y")
                h = jax.nn.gelu(jnp.einsum("gecd,edf->gecf", h, w["up"]))
                h = jnp.einsum("gecf,efd->gecd", h, w["down"])
                out = out + jnp.einsum("gtec,gecd->gtd", mask * (p * best)[..., None], h)
                p = p * (1 - best)
            return out

        def step(w: Any, x: Any) -> Any:
            value, g = jax.value_and_grad(lambda w: jnp.mean(f(w, x) ** 2))(w)
            return value, _descend(w, g)

        specs: dict[str, tuple[Any, ...]] = {"gate": (), "up": ("y",), "down": ("y",)}
        shapes = {"gate": (16, 8), "up": (8, 16, 32), "down": (8, 32, 16)}
        w = {n: at.array(shapes[n], *s) for n, s in specs.items()}
        x = at.array((4, 32, 16), "x")
        if training:
            return jax.jit(step, out_shardings=(at(), {n: at(*s) for n, s in specs.items()})), (w, x)
        return jax.jit(f, out_shardings=at("x")), (w, x)

    return make


def _sorted_experts(at: Places) -> Made:
    """Tokens sorted by expert, put into slots by a scatter, brought back by a gather."""

    def f(x: Any, gate: Any, up: Any, down: Any) -> Any:
        best = jnp.argmax(x @ gate, -1)

        def dispatch(x: Any, best: Any) -> Any:
            order = jnp.argsort(best)
            expert = best[order]
            slot = jnp.arange(best.shape[0]) - jnp.searchsorted(expert, expert)
            return jnp.zeros((4, 16, x.shape[-1])).at[expert, slot].set(x[order], mode="drop"), (order, expert, slot)

        h, (order, expert, slot) = jax.vmap(dispatch)(x, best)
        h = at.shard(jnp.swapaxes(h, 0, 1), "x")
        h = jax.nn.relu(jnp.einsum("egcd,edf->egcf", h, up))
        h = at.shard(jnp.swapaxes(jnp.einsum("egcf,efd->egcd", h, down), 0, 1), "x")

        def collect(h: Any, order: Any, expert: Any, slot: Any) -> Any:
            return jnp.zeros((32, h.shape[-1])).at[order].set(h.at[expert, slot].get(mode="fill", fill_value=0))

        return jax.vmap(collect)(h, order, expert, slot)

    args = (at.array((4, 32, 16), "x"), at.array((16, 4)), at.array((4, 16, 32), "x"), at.array((4, 32, 16), "x"))
    return jax.jit(f, out_shardings=at("x")), args


def _exchanged_experts(at: Places) -> Made:
    """Expert parallelism by hand: all-to-all there and back, with gradients; room for every token, on any mesh."""

    def local(x: Any, gate: Any, up: Any, down: Any) -> Any:
        p = jax.nn.softmax(x @ gate)
        best = jax.nn.one_hot(jnp.argmax(p, -1), 8)
        slot = jax.nn.one_hot((jnp.sum(jnp.cumsum(best, 0) * best, -1) - 1).astype(np.int32), x.shape[0])
        mask = best[..., None] * slot[:, None]
        h = jnp.einsum("tec,td->ecd", mask, x)
        h = lax.all_to_all(h, "x", 0, 1, tiled=True)
        h = jnp.einsum("ecf,efd->ecd", jax.nn.relu(jnp.einsum("ecd,edf->ecf", h, up)), down)
        h = lax.all_to_all(h, "x", 1, 0, tiled=True)
        return jnp.einsum("tec,ecd->td", mask * p[..., None], h)

    x, whole = PartitionSpec("x"), PartitionSpec()
    layer = jax.shard_map(local, mesh=at.mesh, in_specs=(x, whole, x, x), out_specs=x)

    def step(x: Any, gate: Any, up: Any, down: Any) -> Any:
        value, g = jax.value_and_grad(lambda g, u, d: jnp.mean(layer(x, g, u, d) ** 2), (0, 1, 2))(gate, up, down)
        return value, _descend((gate, up, down), g)

    args = (at.array((64, 16), "x"), at.array((16, 8)), at.array((8, 16, 32), "x"), at.array((8, 32, 16), "x"))
    return jax.jit(step, out_shardings=(at(), (at(), at("x"), at("x")))), args


# -- decoding ---------------------------------------------------------------------------------------------------------


def _decode_groups(per_row: bool) -> Callable[[Places], Made]:
    """Grouped queries against a cache; every row at one position, or each at its own (vmapped updates)."""

    def make(at: Places) -> Made:
        def f(cache: Any, x: Any, position: Any, w: Any) -> Any:
            q = jnp.einsum("bd,dgqe->bgqe", x, w["q"])
            k, v = (jnp.einsum("bd,dge->bge", x, w[n]) for n in "kv")
            new = jnp.stack([k, v], 1)[:, :, None]
            if per_row:
                cache = jax.vmap(lambda c, n, p: lax.dynamic_update_slice(c, n, (0, p, 0, 0)))(cache, new, position)
                seen = jnp.arange(cache.shape[2]) <= position[:, None]
            else:
                cache = lax.dynamic_update_slice_in_dim(cache, new, position, 2)
                seen = (jnp.arange(cache.shape[2]) <= position)[None]
            s = jnp.where(seen[:, None, None], jnp.einsum("bgqe,btge->bgqt", q, cache[:, 0]), -1e9)
            a = jnp.einsum("bgqt,btge->bgqe", jax.nn.softmax(s, -1), cache[:, 1])
            return cache, jnp.einsum("bgqe,gqed->bd", a, w["o"])

        w = {n: at.array((32, 4, 8), None, "y") for n in "kv"}
        w["q"], w["o"] = at.array((32, 4, 2, 8), None, "y"), at.array((4, 2, 8, 32), "y")
        cache = at.array((8, 2, 48, 4, 8), "x", None, None, "y")
        position = at.array((8,), "x", dtype=np.int32) if per_row else at.array((), dtype=np.int32)
        outs = (at("x", None, None, "y"), at("x"))
        return jax.jit(f, out_shardings=outs, donate_argnums=0), (cache, at.array((8, 32), "x"), position, w)

    return make


def _generate(at: Places) -> Made:
    """Four greedy tokens in a loop that carries the cache; vocabulary split."""

    def f(table: Any, w: Any, keys: Any, token: Any) -> Any:
        def one(c: Any, position: Any) -> Any:
            keys, token = c
            h = table[token]
            keys = lax.dynamic_update_slice(keys, (h @ w)[:, None], (0, position, 0))
            s = jnp.where(jnp.arange(32) <= position, jnp.einsum("bd,btd->bt", h, keys), -1e9)
            h = h + jnp.einsum("bt,btd->bd", jax.nn.softmax(s, -1), keys)
            token = jnp.argmax(h @ table.T, -1).astype(np.int32)
            return (keys, token), token

        (keys, _), tokens = lax.scan(one, (keys, token), jnp.arange(4))
        return keys, tokens.T

    args = (
        at.array((256, 16), "y"),
        at.array((16, 16)),
        at.array((8, 32, 16), "x"),
        at.array((8,), "x", dtype=np.int32),
    )
    return jax.jit(f, out_shardings=(at("x"), at("x"))), args


_FOUR, _EIGHT = {"x": 4}, {"x": 8}
_TWO_FOUR, _FOUR_TWO = {"x": 2, "y": 4}, {"x": 4, "y": 2}
_CUBE = {"x": 2, "y": 2, "z": 2}

LANGUAGE: tuple[Program, ...] = (
    Program("grouped queries, data x tensor", _TWO_FOUR, _llama(_tensor("y"), "x")),
    Program("grouped queries, inputs annotated", _FOUR_TWO, _llama(_tensor("y"), "x", annotated="inputs")),
    Program("grouped queries, outputs annotated", _TWO_FOUR, _llama(_tensor("y"), "x", annotated="outputs")),
    Program("grouped queries, data x FSDP x tensor", _CUBE, _llama(_both("y", "z"), ("x", "y"))),
    Program("grouped queries, FSDP over two axes", _TWO_FOUR, _llama(_both(("x", "y"), None), ("x", "y"))),
    Program("grouped queries, sequence split", _CUBE, _llama(_both("x", "z"), "x", length="y", annotated="jit")),
    Program("multi-query attention, tensor parallel", _EIGHT, _llama(_MULTI_QUERY, None, 1)),
    Program("multi-query attention, data parallel", _FOUR, _llama({}, "x", 1, annotated="inputs")),
    Program("attention in chunks of keys", _TWO_FOUR, _chunked),
    Program("attention, sequence to heads", _EIGHT, _exchange_heads),
    Program("attention within neighbouring blocks", _EIGHT, _local_attention),
    Program("ring attention training", _FOUR_TWO, _ring_training),
    Program("gated recurrence by associative scan", _FOUR_TWO, _state_space),
    Program("cross entropy, vocabulary split, look-up", _TWO_FOUR, _head(False)),
    Program("cross entropy, vocabulary split, one-hot", _FOUR_TWO, _head(True)),
    Program("masked language model, data parallel", _EIGHT, _masked),
    Program("contrastive loss, data parallel", _FOUR, _contrast),
    Program("two experts by capacity", _FOUR_TWO, _two_experts(False)),
    Program("two experts by capacity, training", _TWO_FOUR, _two_experts(True)),
    Program("experts by sorting", _FOUR, _sorted_experts),
    Program("experts by all-to-all in shard_map", _EIGHT, _exchanged_experts),
    Program("decode, grouped queries", _TWO_FOUR, _decode_groups(False)),
    Program("decode, a position per row", _FOUR_TWO, _decode_groups(True)),
    Program("greedy generation in a loop", _TWO_FOUR, _generate),
)
