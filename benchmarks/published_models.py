"""Training steps of published runs, as JAX programs over abstract meshes: nothing is allocated, no devices are needed.

Decoders with weights in f32, computing in bf16, layers under scan with rematerialisation, and Adam.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

__all__ = ["REMAT", "Decoder", "Run", "scaled", "training_step"]

#: What is kept for the backward pass: outputs of matrix products (not those of attention), or only a layer's input.
REMAT: Mapping[str, Callable[..., bool]] = {
    "minimal": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "full": jax.checkpoint_policies.nothing_saveable,
}

_Specs = dict[str, tuple[tuple[int, ...], tuple[Any, ...]]]


@dataclass(frozen=True)
class Decoder:
    """A decoder with RMS norm, rotary positions and separate tables for tokens and logits, its MLP ``gated`` by silu or
    plain with relu; ``gpt``: layer norm, learned positions, gelu and one table, as GPT-3 has. Without ``flash`` the
    scores of attention lie in memory."""

    emb: int
    heads: int
    mlp: int
    layers: int
    vocab: int = 32_000
    head_dim: int = 128
    length: int = 2_048
    gated: bool = True
    gpt: bool = False
    flash: bool = True

    @property
    def parameters(self) -> int:
        """Elements of all weights."""
        layer = 4 * self.emb * self.heads * self.head_dim + (3 if self.gated else 2) * self.emb * self.mlp
        norms = 4 * self.emb if self.gpt else 2 * self.emb
        tables = (self.vocab + self.length if self.gpt else 2 * self.vocab) * self.emb
        return self.layers * (layer + norms) + tables + norms // 2

    def flops_of_token(self, *, causal: bool) -> float:
        """Floating-point operations of a training step per token as publishers count them: six per parameter, and
        attention's two products (half of them where what the mask hides does not count). What rematerialisation
        computes again does not count."""
        attention = 12 * self.layers * self.heads * self.head_dim * self.length * (0.5 if causal else 1.0)
        return 6.0 * self.parameters + attention


def scaled(scale: int) -> Decoder:
    """The llama-like model of a global scale, a power of two."""
    q, r = divmod(scale.bit_length() - 1, 3)
    some, more = 2 ** (q + (r > 0)), 2 ** (q + (r > 1))
    return Decoder(emb=2_048 * more, heads=16 * some, mlp=7_168 * some, layers=16 * 2**q)


@dataclass(frozen=True)
class Run:
    """A model on a mesh of ``data``, ``fsdp`` and ``tensor`` axes, with ``batch`` sequences altogether, whose gradients
    are added up over ``parts`` of it, one after the other."""

    model: Decoder
    mesh: Mapping[str, int]
    batch: int
    remat: str
    parts: int = 1


def training_step(run: Run) -> tuple[Any, tuple[Any, ...]]:
    """The jitted step (weights, first and second moments, tokens, targets) -> (weights, moments, loss), and its
    abstract arguments with their shardings."""
    model = run.model
    mesh = AbstractMesh(tuple(run.mesh.values()), tuple(run.mesh), axis_types=(AxisType.Auto,) * len(run.mesh))
    step = _Step(model, mesh, run.remat, run.parts)

    def array(shape: tuple[int, ...], spec: tuple[Any, ...], dtype: Any = jnp.float32) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=_placed(mesh, *spec))

    weights = {k: array(*v) for k, v in _weights(model).items()}
    tokens = array((run.batch, model.length), (step.batch,), jnp.int32)
    shardings = {k: w.sharding for k, w in weights.items()}
    whole = _placed(mesh)
    jitted = jax.jit(step.train, donate_argnums=(0, 1, 2), out_shardings=(shardings, shardings, shardings, whole))
    return jitted, (weights, weights, weights, tokens, tokens)


def _placed(mesh: AbstractMesh, *spec: Any) -> NamedSharding:
    """By axes per dimension, those left out that the mesh does not have."""
    return NamedSharding(mesh, PartitionSpec(*(s if isinstance(s, tuple) or s in mesh.shape else None for s in spec)))


def _weights(m: Decoder) -> _Specs:
    """Shapes and axes of the weights: the embedding dimension over ``fsdp``, heads, mlp and vocabulary over
    ``tensor``; layers stacked."""
    n, e, h, d, f, v = m.layers, m.emb, m.heads, m.head_dim, m.mlp, m.vocab
    projection = ((n, e, h, d), (None, "fsdp", "tensor", None))
    up = ((n, e, f), (None, "fsdp", "tensor"))
    out: _Specs = {
        "query": projection,
        "key": projection,
        "value": projection,
        "out": ((n, h, d, e), (None, "tensor", None, "fsdp")),
        "up": up,
        "down": ((n, f, e), (None, "tensor", "fsdp")),
        "norm1": ((n, e), (None, "tensor")),
        "norm2": ((n, e), (None, "tensor")),
        "norm": ((e,), ("tensor",)),
        "embedding": ((v, e), ("tensor", "fsdp")),
    }
    if m.gated:
        out["gate"] = up
    if not m.gpt:
        return {**out, "logits": ((e, v), ("fsdp", "tensor"))}
    biases = {k.replace("norm", "bias"): s for k, s in out.items() if k.startswith("norm")}
    return {**out, **biases, "positions": ((m.length, e), (None, "fsdp"))}


@dataclass(frozen=True)
class _Step:
    """The functions of one step."""

    model: Decoder
    mesh: AbstractMesh
    remat: str
    parts: int

    @property
    def batch(self) -> tuple[str, ...]:
        """The axes that split the batch."""
        return tuple(a for a in ("data", "fsdp") if a in self.mesh.shape)

    def lie(self, x: Any, *spec: Any) -> Any:
        """``x`` with its batch split, the other dimensions as said."""
        return lax.with_sharding_constraint(x, _placed(self.mesh, self.batch, *spec))

    def train(self, w: Any, first: Any, second: Any, tokens: Any, targets: Any) -> Any:
        loss, g = self.gradients(w, tokens, targets)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, g)
        second = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g * g, second, g)
        w = jax.tree.map(lambda w, m, v: w - 3e-5 * (m / (jnp.sqrt(v) + 1e-8) + 0.1 * w), w, first, second)
        return w, first, second, loss

    def gradients(self, w: Any, tokens: Any, targets: Any) -> Any:
        """The mean loss and its gradients, over all parts of the batch."""
        if self.parts == 1:
            return jax.value_and_grad(self.loss)(w, tokens, targets)
        cut = [x.reshape(-1, self.parts, x.shape[1]).swapaxes(0, 1) for x in (tokens, targets)]

        def part(total: Any, given: Any) -> Any:
            made = jax.value_and_grad(self.loss)(w, *(self.lie(x) for x in given))
            return jax.tree.map(jnp.add, total, made), None

        none = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, w))
        total, _ = lax.scan(part, none, tuple(cut))
        return jax.tree.map(lambda x: x / self.parts, total)

    def loss(self, w: Any, tokens: Any, targets: Any) -> Any:
        m = self.model
        x = self.embed(w, tokens)
        layers = {k: a for k, a in w.items() if a.shape[0] == m.layers and k not in _OUTSIDE}
        layer = jax.checkpoint(self.layer, policy=REMAT[self.remat], prevent_cse=False)
        x, _ = lax.scan(layer, x, layers)
        x = self.norm(x, w, "norm")
        table = w["embedding"].T if m.gpt else w["logits"]
        logits = jnp.einsum("bse,ev->bsv", x, _b(table), preferred_element_type=jnp.float32)
        logits = self.lie(logits, None, "tensor")
        of_target = jnp.sum(logits * jax.nn.one_hot(targets, m.vocab, dtype=logits.dtype), -1)
        return jnp.mean(jax.nn.logsumexp(logits, -1) - of_target)

    def embed(self, w: Any, tokens: Any) -> Any:
        m = self.model
        x = jnp.einsum("bsv,ve->bse", jax.nn.one_hot(tokens, m.vocab, dtype=jnp.bfloat16), _b(w["embedding"]))
        if m.gpt:
            x = x + _b(w["positions"])
        return self.lie(x, None, "tensor")

    def layer(self, x: Any, w: Any) -> Any:
        """(sequences, length, emb) -> the same."""
        h = self.norm(x, w, "norm1")
        q, k, v = (self.lie(jnp.einsum("bse,ehd->bshd", h, _b(w[n])), None, "tensor") for n in _QKV)
        if not self.model.gpt:
            q, k = rotated(q), rotated(k)
        mixed = self.lie(attention(q, k, v), None, "tensor")
        x = self.lie(x + jnp.einsum("bshd,hde->bse", mixed, _b(w["out"])), None, "tensor")
        h = self.norm(x, w, "norm2")
        up = self.lie(jnp.einsum("bse,ef->bsf", h, _b(w["up"])), None, "tensor")
        if self.model.gated:
            up = up * jax.nn.silu(self.lie(jnp.einsum("bse,ef->bsf", h, _b(w["gate"])), None, "tensor"))
        else:
            up = jax.nn.gelu(up) if self.model.gpt else jax.nn.relu(up)
        x = self.lie(x + jnp.einsum("bsf,fe->bse", up, _b(w["down"])), None, "tensor")
        return x, None

    def norm(self, x: Any, w: Any, name: str) -> Any:
        """RMS or layer norm, computed in f32."""
        y = x.astype(jnp.float32)
        if self.model.gpt:
            y = y - jnp.mean(y, -1, keepdims=True)
        y = _b(y * lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-5)) * _b(w[name])
        return y if not self.model.gpt else y + _b(w[name.replace("norm", "bias")])


_QKV = ("query", "key", "value")
#: Weights outside the layers.
_OUTSIDE = frozenset(("norm", "bias", "embedding", "logits", "positions"))


def _b(x: Any) -> Any:
    return x.astype(jnp.bfloat16)


def rotated(x: Any) -> Any:
    """Rotary positions: (sequences, length, heads, head_dim) -> the same."""
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] * 10_000.0 ** (-jnp.arange(half) / half)
    sin, cos = _b(jnp.sin(angles))[:, None, :], _b(jnp.cos(angles))[:, None, :]
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate((a * cos - b * sin, b * cos + a * sin), -1)


def attention(q: Any, k: Any, v: Any) -> Any:
    """Causal attention over (sequences, length, heads, head_dim), softmax in f32; stands for a fused kernel where the
    machine has one."""
    length, head_dim = q.shape[1], q.shape[3]
    scores = jnp.einsum("bqhd,bkhd->bhqk", q * head_dim**-0.5, k, preferred_element_type=jnp.float32)
    positions = jnp.arange(length)
    scores = jnp.where(positions[:, None] >= positions, scores, -1e30)
    return jnp.einsum("bhqk,bkhd->bqhd", _b(jax.nn.softmax(scores, -1)), v)
