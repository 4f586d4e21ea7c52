"""How long simulating takes: a 100-layer transformer's training step on up to 16,384 devices, under scan and unrolled.

Nothing is allocated and no device is needed: shapes, shardings and a machine's description are enough.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec
from tables import table

import shardc

MACHINE = "h100-dgx"
LAYERS = 100
#: Layers that are written out one after the other; a program of them grows with their number, one with a scan does not.
UNROLLED = 25
#: data, fsdp, model.
MESHES = ((1, 8, 8), (8, 16, 8), (128, 16, 8))
WIDTH, HEADS, HIDDEN, LENGTH, VOCABULARY = 8192, 64, 32768, 4096, 32000
#: Sequences per position along data and fsdp.
SEQUENCES = 4
BATCH = ("data", "fsdp")
_LAYER: Mapping[str, tuple[tuple[int, ...], tuple[str | None, ...]]] = {
    "norm1": ((WIDTH,), (None,)),
    "norm2": ((WIDTH,), (None,)),
    "query": ((WIDTH, HEADS, WIDTH // HEADS), ("fsdp", "model", None)),
    "key": ((WIDTH, HEADS, WIDTH // HEADS), ("fsdp", "model", None)),
    "value": ((WIDTH, HEADS, WIDTH // HEADS), ("fsdp", "model", None)),
    "out": ((HEADS, WIDTH // HEADS, WIDTH), ("model", None, "fsdp")),
    "up": ((WIDTH, HIDDEN), ("fsdp", "model")),
    "down": ((HIDDEN, WIDTH), ("model", "fsdp")),
}


@dataclass(frozen=True)
class Step:
    """A training step with momentum over ``mesh``: ``layers`` under scan, or one after the other."""

    mesh: AbstractMesh
    layers: int
    scan: bool

    def program(self) -> shardc.Program:
        batch = SEQUENCES * self.mesh.shape["data"] * self.mesh.shape["fsdp"]
        weights, moments = self.weights(jnp.bfloat16), self.weights(jnp.float32)
        tokens = self.array((batch, LENGTH + 1), (BATCH,), jnp.int32)
        return shardc.from_jax(jax.jit(self.train, donate_argnums=(0, 1)), weights, moments, tokens)

    def array(self, shape: tuple[int, ...], spec: tuple[Any, ...], dtype: Any) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(self.mesh, PartitionSpec(*spec)))

    def weights(self, dtype: Any) -> Any:
        table = self.array((VOCABULARY, WIDTH), ("model", "fsdp"), dtype)
        if self.scan:
            stacked = {n: self.array((self.layers, *s), (None, *p), dtype) for n, (s, p) in _LAYER.items()}
            return {"table": table, "layers": stacked}
        apart = [{n: self.array(s, p, dtype) for n, (s, p) in _LAYER.items()} for _ in range(self.layers)]
        return {"table": table, "layers": apart}

    def lie(self, x: Any, *spec: Any) -> Any:
        return lax.with_sharding_constraint(x, NamedSharding(self.mesh, PartitionSpec(BATCH, *spec)))

    def train(self, weights: Any, moments: Any, tokens: Any) -> Any:
        loss, gradients = jax.value_and_grad(self.loss)(weights, tokens)
        moments = jax.tree.map(lambda m, g: 0.9 * m + g.astype(jnp.float32), moments, gradients)
        weights = jax.tree.map(lambda w, m: (w - 1e-3 * m).astype(w.dtype), weights, moments)
        return weights, moments, loss

    def loss(self, weights: Any, tokens: Any) -> Any:
        x = self.lie(weights["table"][tokens[:, :-1]], None, None)
        layer = jax.checkpoint(self.layer)
        if self.scan:
            x, _ = lax.scan(lambda x, w: (layer(x, w), None), x, weights["layers"])
        else:
            for w in weights["layers"]:
                x = layer(x, w)
        logits = self.lie((x @ weights["table"].T).astype(jnp.float32), None, "model")
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], -1))

    def layer(self, x: Any, w: Any) -> Any:
        h = _norm(x, w["norm1"])
        q, k, v = (self.lie(jnp.einsum("bte,ehd->bthd", h, w[n]), None, "model") for n in ("query", "key", "value"))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) * (WIDTH / HEADS) ** -0.5
        scores = jnp.where(jnp.tril(jnp.ones((LENGTH, LENGTH), bool)), scores, -1e30)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores).astype(x.dtype), v)
        x = self.lie(x + jnp.einsum("bthd,hde->bte", mixed, w["out"]), None, None)
        return self.lie(x + jax.nn.gelu(_norm(x, w["norm2"]) @ w["up"]) @ w["down"], None, None)


def _norm(x: Any, scale: Any) -> Any:
    y = x.astype(jnp.float32)
    return (y * lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)).astype(x.dtype) * scale


def measure(mesh: tuple[int, int, int], *, scan: bool, layers: int = LAYERS) -> tuple[str, ...]:
    """A row: seconds of each stage, size of the program, and what was predicted."""
    over = AbstractMesh(mesh, ("data", "fsdp", "model"), axis_types=(AxisType.Auto,) * 3)
    begin = time.perf_counter()
    program = Step(over, layers, scan).program()
    read = time.perf_counter()
    partitioned = program.partition(machine=MACHINE)
    done = time.perf_counter()
    found = partitioned.simulate(ignore_memory=True)
    end = time.perf_counter()
    return (
        f"{layers} {'under scan' if scan else 'unrolled'}",
        f"{over.size:,}",
        f"{sum(1 for _ in partitioned.module.instructions()):,}",
        f"{read - begin:.1f}",
        f"{done - read:.1f}",
        f"{end - done:.1f}",
        f"{found.step_seconds:.2f} s",
        f"{100 * found.mfu:.0f}%",
    )


def section() -> str:
    """The table, and what it says."""
    head = ("layers", "devices", "instructions", "read, s", "partition, s", "simulate, s", "predicted step", "MFU")
    rows = [measure(mesh, scan=True) for mesh in MESHES]
    rows += [measure(MESHES[-1], scan=False, layers=UNROLLED)]
    text = f"The training step of a transformer, {WIDTH} wide, rematerialised, {SEQUENCES} "
    text += f"sequences of {LENGTH} tokens per position of data and fsdp, on meshes data x fsdp x model of {MACHINE}:"
    return f"{text}\n\n{table(head, rows)}"


if __name__ == "__main__":
    print(section())
