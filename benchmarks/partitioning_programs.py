"""Sharded JAX programs for the comparison with XLA's partitioner: forward, training, serving, science.

Each is a function of a JAX mesh (concrete for XLA, abstract for shardc) that gives a jitted function and its
arguments as `jax.ShapeDtypeStruct` with shardings. Axes are ``x`` (8 devices) or ``x`` and ``y`` (2x4).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

__all__ = ["PROGRAMS", "Made", "Places", "Program", "convolve", "draw"]

Made = tuple[Any, tuple[Any, ...]]


@dataclass(frozen=True)
class Program:
    """A name, the mesh's axes, and what makes the program over a JAX mesh."""

    name: str
    mesh: dict[str, int]
    make: Callable[[Places], Made]


class Places:
    """Shorthands for shardings over one mesh."""

    def __init__(self, mesh: Any) -> None:
        self.mesh = mesh

    def __call__(self, *spec: Any) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(*spec))

    def array(self, shape: tuple[int, ...], *spec: Any, dtype: Any = np.float32) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=self(*spec))

    def shard(self, x: Any, *spec: Any) -> Any:
        """A constraint inside a program."""
        return lax.with_sharding_constraint(x, self(*spec))


def draw(shapes: list[tuple[tuple[int, ...], np.dtype[Any]]]) -> list[np.ndarray[Any, Any]]:
    """Seeded arguments: small floats, integers below 16, true predicates."""
    rng = np.random.default_rng(0)
    out = []
    for dims, dtype in shapes:
        if dtype == np.bool_:
            out.append(np.ones(dims, bool))
        elif np.issubdtype(dtype, np.integer):
            out.append(rng.integers(0, 16, dims).astype(dtype))
        else:
            out.append((rng.standard_normal(dims) * 0.3).astype(dtype))
    return out


# -- perceptrons ---------------------------------------------------------------------------------------------------


def _perceptron_step(weights: Any, x: Any, y: Any) -> Any:
    def loss(weights: Any) -> Any:
        h = x
        for w in weights:
            h = jax.nn.relu(h @ w)
        return jnp.mean((h - y) ** 2)

    value, gradients = jax.value_and_grad(loss)(weights)
    return value, jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients)


def _perceptron(first: tuple[Any, ...], second: tuple[Any, ...], batch: Any) -> Callable[[Places], Made]:
    def make(at: Places) -> Made:
        specs = [first, second, first, second]
        shapes = [(128, 512), (512, 128)] * 2
        weights = [at.array(s, *p) for s, p in zip(shapes, specs, strict=True)]
        data = at.array((256, 128), batch)
        outs = (at(), [at(*p) for p in specs])
        return jax.jit(_perceptron_step, out_shardings=outs), (weights, data, data)

    return make


# -- transformers --------------------------------------------------------------------------------------------------


def _norm(x: Any) -> Any:
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def _attention(x: Any, layer: dict[str, Any]) -> Any:
    q, k, v = (jnp.einsum("bsd,dhe->bhse", x, layer[n]) for n in ("q", "k", "v"))
    scores = jnp.einsum("bhse,bhte->bhst", q, k)
    causal = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    a = jax.nn.softmax(jnp.where(causal, scores, -1e9))
    return jnp.einsum("bhse,hed->bsd", jnp.einsum("bhst,bhte->bhse", a, v), layer["o"])


def _block(x: Any, layer: dict[str, Any], keep: Callable[[Any], Any] = lambda x: x) -> Any:
    x = keep(x + _attention(_norm(x), layer))
    return keep(x + jax.nn.gelu(_norm(x) @ layer["up"]) @ layer["down"])


_SHAPES = {
    "q": (64, 8, 16),
    "k": (64, 8, 16),
    "v": (64, 8, 16),
    "o": (8, 16, 64),
    "up": (64, 256),
    "down": (256, 64),
}
_TENSOR = {
    "q": (None, "y"),
    "k": (None, "y"),
    "v": (None, "y"),
    "o": ("y",),
    "up": (None, "y"),
    "down": ("y",),
}
_FULLY = dict.fromkeys(_SHAPES, ("x",))
_BOTH = {
    "q": ("x", "y"),
    "k": ("x", "y"),
    "v": ("x", "y"),
    "o": ("y", None, "x"),
    "up": ("x", "y"),
    "down": ("y", "x"),
}


def _transformer(
    specs: dict[str, tuple[Any, ...]], batch: Any = "x", *, scan: bool = False, sequence: Any = None
) -> Callable[[Places], Made]:
    """A training step of two layers (four in a scan with remat); ``sequence`` splits activations between blocks."""

    def make(at: Places) -> Made:
        def loss(layers: Any, x: Any) -> Any:
            keep = (lambda h: at.shard(h, batch, sequence)) if sequence else (lambda h: h)
            if scan:
                x = lax.scan(jax.checkpoint(lambda h, w: (_block(h, w, keep), None)), x, layers)[0]
            else:
                for w in layers:
                    x = _block(x, w, keep)
            return jnp.mean(_norm(x) ** 2 * x)

        def step(layers: Any, x: Any) -> Any:
            value, gradients = jax.value_and_grad(loss)(layers, x)
            return value, jax.tree.map(lambda w, g: w - 0.1 * g, layers, gradients)

        x = at.array((16, 32, 64), batch, sequence)
        if scan:
            layers: Any = {n: at.array((4, *s), None, *specs[n]) for n, s in _SHAPES.items()}
            places: Any = {n: at(None, *specs[n]) for n in _SHAPES}
        else:
            layers = [{n: at.array(s, *specs[n]) for n, s in _SHAPES.items()} for _ in range(2)]
            places = [{n: at(*specs[n]) for n in _SHAPES} for _ in range(2)]
        return jax.jit(step, out_shardings=(at(), places)), (layers, x)

    return make


def _accumulated(at: Places) -> Made:
    """Gradients of four microbatches added in a loop, data-parallel."""

    def step(w: Any, x: Any) -> Any:
        def loss(w: Any, x: Any) -> Any:
            return jnp.mean(jnp.tanh(x @ w) ** 2)

        def one(total: Any, x: Any) -> Any:
            return total + jax.grad(loss)(w, x), None

        return w - 0.1 * lax.scan(one, jnp.zeros_like(w), x)[0]

    args = (at.array((128, 128)), at.array((4, 64, 128), None, "x"))
    return jax.jit(step, out_shardings=at()), args


# -- mixtures of experts -------------------------------------------------------------------------------------------


def _experts_einsum(at: Places) -> Made:
    def f(x: Any, gate: Any, up: Any, down: Any) -> Any:
        p = jax.nn.softmax(x @ gate)
        best = jnp.argmax(p, -1)
        chosen = jax.nn.one_hot(best, 8)
        position = jnp.cumsum(chosen, 1) * chosen - 1
        slots = jax.nn.one_hot(position.astype(np.int32), 16) * chosen[..., None]
        h = jnp.einsum("gtec,gtd->egcd", slots, x)
        h = at.shard(h, "x", None, None, None)
        h = jax.nn.relu(jnp.einsum("egcd,edf->egcf", h, up))
        h = jnp.einsum("egcf,efd->egcd", h, down)
        h = at.shard(h, "x", None, None, None)
        return jnp.einsum("gtec,egcd->gtd", slots * p[..., None], h)

    args = (
        at.array((8, 64, 32), "x"),
        at.array((32, 8)),
        at.array((8, 32, 64), "x"),
        at.array((8, 64, 32), "x"),
    )
    return jax.jit(f, out_shardings=at("x")), args


def _experts_scatter(at: Places) -> Made:
    def f(x: Any, gate: Any, up: Any, down: Any) -> Any:
        p = jax.nn.softmax(x @ gate)
        best = jnp.argmax(p, -1)
        chosen = jax.nn.one_hot(best, 8, dtype=np.int32)
        position = jnp.sum(jnp.cumsum(chosen, 1) * chosen, -1) - 1

        def dispatch(x: Any, best: Any, position: Any) -> Any:
            return jnp.zeros((8, 16, 32)).at[best, position].add(x, mode="drop")

        h = at.shard(jax.vmap(dispatch, out_axes=1)(x, best, position), "x", None, None, None)
        h = jax.nn.relu(jnp.einsum("egcd,edf->egcf", h, up))
        h = at.shard(jnp.einsum("egcf,efd->egcd", h, down), "x", None, None, None)
        back = jax.vmap(lambda h, e, c: h.at[e, c].get(mode="fill", fill_value=0), in_axes=(1, 0, 0))
        return back(h, best, position) * jnp.max(p, -1, keepdims=True)

    args = (
        at.array((8, 64, 32), "x"),
        at.array((32, 8)),
        at.array((8, 32, 64), "x"),
        at.array((8, 64, 32), "x"),
    )
    return jax.jit(f, out_shardings=at("x")), args


# -- serving -------------------------------------------------------------------------------------------------------


def _decode(length: Any, heads: Any) -> Callable[[Places], Made]:
    """One token with a KV cache that is split by batch and by ``length`` or ``heads``."""

    def make(at: Places) -> Made:
        def f(keys: Any, values: Any, x: Any, position: Any, w: Any) -> Any:
            q, k, v = (jnp.einsum("bd,dhe->bhe", x, w[n]) for n in "qkv")
            keys = lax.dynamic_update_slice(keys, k[:, None], (0, position, 0, 0))
            values = lax.dynamic_update_slice(values, v[:, None], (0, position, 0, 0))
            scores = jnp.einsum("bhe,bthe->bht", q, keys)
            scores = jnp.where(jnp.arange(keys.shape[1]) <= position, scores, -1e9)
            a = jnp.einsum("bht,bthe->bhe", jax.nn.softmax(scores), values)
            return keys, values, jnp.einsum("bhe,hed->bd", a, w["o"])

        w = {n: at.array((64, 8, 16), None, heads) for n in "qkv"}
        w["o"] = at.array((8, 16, 64), heads)
        cache = at.array((4, 128, 8, 16), "x", length, heads)
        outs = (at("x", length, heads), at("x", length, heads), at("x"))
        args = (cache, cache, at.array((4, 64), "x"), at.array((), dtype=np.int32), w)
        return jax.jit(f, out_shardings=outs, donate_argnums=(0, 1)), args

    return make


def _embedding(at: Places) -> Made:
    """A look-up in a table split by vocabulary, and the logits and loss over it, with gradients."""

    def step(table: Any, tokens: Any) -> Any:
        def loss(table: Any) -> Any:
            h = jnp.tanh(table[tokens])
            logits = h @ table.T
            picked = jnp.take_along_axis(logits, tokens[..., None], -1)[..., 0]
            return jnp.mean(jax.nn.logsumexp(logits, -1) - picked)

        value, gradient = jax.value_and_grad(loss)(table)
        return value, table - 0.1 * gradient

    args = (at.array((512, 64), "y"), at.array((8, 32), "x", dtype=np.int32))
    return jax.jit(step, out_shardings=(at(), at("y"))), args


def _top_tokens(at: Places) -> Made:
    """Sampling's first step: the best of a vocabulary that is split."""

    def f(h: Any, table: Any) -> Any:
        logits = h @ table.T
        values, indices = lax.top_k(logits, 8)
        return jnp.argmax(logits, -1), values, indices

    return jax.jit(f, out_shardings=at("x")), (at.array((8, 64), "x"), at.array((1024, 64), "y"))


# -- images --------------------------------------------------------------------------------------------------------


def convolve(x: Any, w: Any, stride: int = 1) -> Any:
    return lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _convnet(spec: tuple[Any, ...]) -> Callable[[Places], Made]:
    def make(at: Places) -> Made:
        def step(weights: Any, x: Any) -> Any:
            def loss(weights: Any) -> Any:
                h = jax.nn.relu(convolve(x, weights[0]))
                h = jax.nn.relu(convolve(h, weights[1], 2))
                h = lax.reduce_window(h, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
                return jnp.mean(convolve(h, weights[2]) ** 2)

            value, gradients = jax.value_and_grad(loss)(weights)
            return value, jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients)

        weights = [at.array(s) for s in ((3, 3, 4, 8), (3, 3, 8, 16), (3, 3, 16, 16))]
        return jax.jit(step, out_shardings=(at(), [at()] * 3)), (weights, at.array((8, 64, 64, 4), *spec))

    return make


def _unet(at: Places) -> Made:
    """Down and up again with a skip connection, split along height."""

    def f(x: Any, w: Any) -> Any:
        a = jax.nn.relu(convolve(x, w[0]))
        b = jax.nn.relu(convolve(a, w[1], 2))
        c = jax.nn.relu(convolve(b, w[2]))
        up = lax.conv_transpose(c, w[3], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return convolve(jnp.concatenate([a, up], -1), w[4])

    shapes = ((3, 3, 4, 8), (3, 3, 8, 16), (3, 3, 16, 16), (2, 2, 16, 8), (3, 3, 16, 4))
    x = at.array((2, 128, 32, 4), None, "x")
    return jax.jit(f, out_shardings=at(None, "x")), (x, [at.array(s) for s in shapes])


# -- science -------------------------------------------------------------------------------------------------------


def _heat(at: Places) -> Made:
    """A five-point stencil with fixed borders, ten steps."""

    def f(u: Any) -> Any:
        def one(_: Any, u: Any) -> Any:
            inner = 0.25 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2])
            return jnp.pad(inner, 1) + 0.1 * u

        return lax.fori_loop(0, 10, one, u)

    return jax.jit(f, out_shardings=at("x", "y")), (at.array((256, 256), "x", "y"),)


def _waves(at: Places) -> Made:
    """A periodic stencil by rolls, ten steps."""

    def f(u: Any, v: Any) -> Any:
        def one(_: Any, c: Any) -> Any:
            u, v = c
            around = jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1)
            v = v + 0.1 * (around - 4 * u)
            return u + 0.1 * v, v

        return lax.fori_loop(0, 10, one, (u, v))

    grid = at.array((256, 256), "x")
    return jax.jit(f, out_shardings=(at("x"), at("x"))), (grid, grid)


def _lstm(at: Places) -> Made:
    def f(w: Any, u: Any, x: Any) -> Any:
        def cell(carry: Any, x: Any) -> Any:
            h, c = carry
            i, f, g, o = (x @ w[k] + h @ u[k] for k in range(4))
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zero = jnp.zeros((x.shape[1], 64))
        return lax.scan(cell, (zero, zero), x)[1]

    weights = at.array((4, 64, 64), None, None, "y")
    return jax.jit(f, out_shardings=at(None, "x", "y")), (weights, weights, at.array((16, 32, 64), None, "x"))


def _k_means(at: Places) -> Made:
    def f(x: Any, centres: Any) -> Any:
        def one(centres: Any, _: Any) -> Any:
            nearest = jnp.argmin(jnp.sum((x[:, None] - centres[None]) ** 2, -1), 1)
            total = jax.ops.segment_sum(x, nearest, 16)
            count = jax.ops.segment_sum(jnp.ones(x.shape[0]), nearest, 16)
            return total / jnp.maximum(count, 1)[:, None], None

        return lax.scan(one, centres, None, length=5)[0]

    return jax.jit(f, out_shardings=at()), (at.array((1024, 8), "x"), at.array((16, 8)))


def _gradients_conjugate(at: Places) -> Made:
    """Conjugate gradients on a dense matrix split by rows."""

    def f(a: Any, b: Any) -> Any:
        def one(_: Any, c: Any) -> Any:
            x, r, p, rr = c
            q = a @ p + 10 * p
            alpha = rr / (p @ q)
            x, r = x + alpha * p, r - alpha * q
            new = r @ r
            return x, r, r + (new / rr) * p, new

        return lax.fori_loop(0, 10, one, (jnp.zeros_like(b), b, b, b @ b))[0]

    return jax.jit(f, out_shardings=at("x")), (at.array((256, 256), "x"), at.array((256,), "x"))


def _poisson(at: Places) -> Made:
    """A periodic Poisson solver by FFT; the field is split along one dimension."""

    def f(u: Any) -> Any:
        k = jnp.fft.fftfreq(u.shape[0]) ** 2
        spectrum = jnp.fft.fft2(u)
        return jnp.real(jnp.fft.ifft2(spectrum / (k[:, None] + k[None, :] + 1.0)))

    return jax.jit(f, out_shardings=at("x")), (at.array((256, 256), "x"),)


def _graph(at: Places) -> Made:
    """Two rounds of messages over edges that are split, nodes whole; with gradients."""

    def step(w: Any, nodes: Any, source: Any, target: Any) -> Any:
        def loss(w: Any) -> Any:
            h = nodes
            for k in range(2):
                messages = jnp.tanh(h[source] @ w[k])
                h = h + jax.ops.segment_sum(messages, target, 64)
            return jnp.mean(h**2)

        value, gradient = jax.value_and_grad(loss)(w)
        return value, w - 0.1 * gradient

    edges = at.array((1024,), "x", dtype=np.int32)
    args = (at.array((2, 16, 16)), at.array((64, 16)), edges, edges)
    return jax.jit(step, out_shardings=(at(), at())), args


# -- by hand -------------------------------------------------------------------------------------------------------


def _ring_attention(at: Places) -> Made:
    """Blocks of keys and values go round a ring."""

    def local(q: Any, k: Any, v: Any) -> Any:
        n = lax.axis_size("x")
        ring = [(i, (i + 1) % n) for i in range(n)]

        def one(c: Any, _: Any) -> Any:
            k, v, top, total, out = c
            s = jnp.einsum("bqe,bke->bqk", q, k)
            new = jnp.maximum(top, s.max(-1))
            p, scale = jnp.exp(s - new[..., None]), jnp.exp(top - new)
            out = out * scale[..., None] + jnp.einsum("bqk,bke->bqe", p, v)
            total = total * scale + p.sum(-1)
            k, v = lax.ppermute(k, "x", ring), lax.ppermute(v, "x", ring)
            return (k, v, new, total, out), None

        start = (k, v, q[..., 0] * 0 - 1e9, q[..., 0] * 0, q * 0)
        _, _, _, total, out = lax.scan(one, start, None, length=n)[0]
        return out / total[..., None]

    spec = PartitionSpec(None, "x")
    f = jax.shard_map(local, mesh=at.mesh, in_specs=(spec,) * 3, out_specs=spec)
    part = at.array((4, 128, 16), None, "x")
    return jax.jit(f, out_shardings=at(None, "x")), (part, part, part)


def _pipeline(at: Places) -> Made:
    """Eight stages on eight devices: a buffer of activations shifts by one stage per step."""

    def f(w: Any, batches: Any) -> Any:
        def one(state: Any, x: Any) -> Any:
            state = jnp.concatenate([x[None], state[:-1]])
            state = at.shard(state, "x", None, None)
            state = jnp.tanh(jnp.einsum("sbd,sde->sbe", state, w))
            return state, state[-1]

        state = jnp.zeros((8, *batches.shape[1:]))
        return lax.scan(one, state, batches)[1]

    args = (at.array((8, 64, 64), "x"), at.array((12, 16, 64)))
    return jax.jit(f, out_shardings=at()), args


_ONE = {"x": 8}
_TWO = {"x": 2, "y": 4}

PROGRAMS: tuple[Program, ...] = (
    Program("MLP, data parallel", _ONE, _perceptron((), (), "x")),
    Program("MLP, tensor parallel", _ONE, _perceptron((None, "x"), ("x",), None)),
    Program("MLP, data x tensor", _TWO, _perceptron((None, "y"), ("y",), "x")),
    Program("MLP, 2D weights", _TWO, _perceptron(("x", "y"), ("y", "x"), "x")),
    Program("MLP, FSDP", _ONE, _perceptron(("x",), ("x",), "x")),
    Program("gradient accumulation", _ONE, _accumulated),
    Program("transformer, tensor parallel", _TWO, _transformer(_TENSOR)),
    Program("transformer, FSDP", _ONE, _transformer(_FULLY)),
    Program("transformer, FSDP x tensor, scan and remat", _TWO, _transformer(_BOTH, scan=True)),
    Program("transformer, sequence parallel", _TWO, _transformer(_TENSOR, sequence="y")),
    Program("mixture of experts, einsum", _ONE, _experts_einsum),
    Program("mixture of experts, gather and scatter", _ONE, _experts_scatter),
    Program("decode, cache split by heads", _TWO, _decode(None, "y")),
    Program("decode, cache split by length", _TWO, _decode("y", None)),
    Program("embedding split by vocabulary", _TWO, _embedding),
    Program("top-k and argmax over vocabulary", _TWO, _top_tokens),
    Program("convnet, batch", _ONE, _convnet(("x",))),
    Program("convnet, spatial", _ONE, _convnet((None, "x"))),
    Program("convnet, batch x spatial", _TWO, _convnet(("x", "y"))),
    Program("U-Net, spatial", _ONE, _unet),
    Program("heat stencil", _TWO, _heat),
    Program("periodic stencil by rolls", _ONE, _waves),
    Program("LSTM", _TWO, _lstm),
    Program("k-means", _ONE, _k_means),
    Program("conjugate gradients", _ONE, _gradients_conjugate),
    Program("Poisson solver by FFT", _ONE, _poisson),
    Program("graph network by segment sums", _ONE, _graph),
    Program("ring attention in shard_map", _ONE, _ring_attention),
    Program("pipeline by shifting", _ONE, _pipeline),
)
