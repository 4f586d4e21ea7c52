"""A Llama-like training step of 100 layers under a scan: as annotated, with a plan, with annotations that are found.

    python benchmarks/plan_scan.py

Weights and batch are annotated and nothing else, as people write these steps. Width 4,096, hidden width 14,336, 32
heads, vocabulary 32,768, batch 256 x 2,048, bf16, layers computed again for gradients; steps are simulated on h100-dgx.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from plan_programs import abstract, adam
from tables import table

import shardc
from shardc import Mesh, P
from shardc.hlo.units import bytes_text, seconds_text

__all__ = ["HEAD", "rows", "scan_of_layers"]

HEAD = ("annotated", "mesh", "as propagated", "with a plan", "processor seconds without / with")
MACHINE = "h100-dgx"
_LAYERS, _WIDTH, _HIDDEN, _HEADS, _VOCABULARY = 100, 4096, 14_336, 32, 32_768
_BATCH, _LENGTH = 256, 2048
_BOTH = ("data", "model")

Spec = tuple[Any, ...]


def _specs(embedding: Spec, inwards: Spec, outwards: Spec, batch: Spec) -> dict[str, P]:
    """Of the weights whose rows are the model's width, of those whose columns are, and of the batch."""
    rows = {f"*['{n}']": P(None, *inwards) for n in "qkvgu"}
    columns = {f"*['{n}']": P(None, *outwards) for n in "od"}
    return {"*['e']": P(*embedding), **rows, **columns, "batch*": P(*batch)}


_MEGATRON = _specs(("model",), (None, "model"), ("model",), ("data",))
_FSDP_TENSOR = _specs(("model", "data"), ("data", "model"), ("model", "data"), ("data",))
_FSDP = _specs((_BOTH,), (_BOTH,), (_BOTH,), (_BOTH,))
_MESH = Mesh({"data": 16, "model": 8})
#: Plans take as long on 4 devices and on 16,384.
PLANS = (
    ("Megatron", _MEGATRON, _MESH),
    ("FSDP over both axes", _FSDP, _MESH),
    ("FSDP + tensor", _FSDP_TENSOR, _MESH),
    ("FSDP + tensor", _FSDP_TENSOR, Mesh({"data": 2, "model": 2})),
    ("FSDP + tensor", _FSDP_TENSOR, Mesh({"data": 128, "model": 128})),
)


def _norm(x: Any) -> Any:
    return x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5)


def _attention(y: Any, w: Any) -> Any:
    q, k, v = ((y @ w[n]).reshape(*y.shape[:2], _HEADS, -1) for n in "qkv")
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k)
    mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    weights = jax.nn.softmax(jnp.where(mask, scores, -1e9), -1)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(y.shape) @ w["o"]


def _loss(w: Any, tokens: Any) -> Any:
    def layer(h: Any, w: Any) -> Any:
        h = h + _attention(_norm(h), w)
        y = _norm(h)
        return h + (jax.nn.silu(y @ w["g"]) * (y @ w["u"])) @ w["d"], None

    h, _ = lax.scan(jax.checkpoint(layer), w["e"][tokens], w["layers"])
    logits = (h @ w["e"].T).astype(jnp.float32)
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[..., None], -1))


def _program() -> shardc.Program:
    shapes = {n: abstract(_LAYERS, _WIDTH, _WIDTH) for n in "qkvo"}
    shapes |= {n: abstract(_LAYERS, _WIDTH, _HIDDEN) for n in "gu"} | {"d": abstract(_LAYERS, _HIDDEN, _WIDTH)}
    w = {"e": abstract(_VOCABULARY, _WIDTH), "layers": shapes}
    tokens = abstract(_BATCH, _LENGTH, dtype="int32")
    return shardc.from_jax(jax.jit(adam(_loss), donate_argnums=(0, 1, 2)), w, w, w, tokens)


def scan_of_layers(mesh: Mesh) -> shardc.Program:
    """The step with weights split by FSDP and tensors, as annotated."""
    return _program().annotate(_FSDP_TENSOR, mesh=mesh)


def rows() -> Iterator[tuple[str, ...]]:
    program = _program()
    for name, specs, mesh in PLANS:
        annotated = program.annotate(specs, mesh=mesh).propagate()
        before, short = _carried_out(annotated, "propagated")
        after, long = _carried_out(annotated, "global")
        yield name, _sizes(mesh), before, after, f"{short:.1f} / {long:.1f}"
    start = time.process_time()
    found = shardc.auto(program, machine=MACHINE, mesh=_MESH)
    took = time.process_time() - start
    after = f"{_told(found.simulation)} by {len(found.annotations)} specs"
    yield "nothing (`shardc.auto`)", _sizes(_MESH), _told(found.given), after, f"- / {took:.1f}"


def _carried_out(annotated: Any, plan: str) -> tuple[str, float]:
    """The step with such a plan, and the processor's seconds for it."""
    start = time.process_time()
    partitioned = annotated.partition(machine=MACHINE, plan=plan)
    took = time.process_time() - start
    return _told(partitioned.simulate(MACHINE, ignore_memory=True)), took


def _told(simulation: Any) -> str:
    return f"{seconds_text(simulation.step_seconds)}, {bytes_text(simulation.peak_bytes)}"


def _sizes(mesh: Mesh) -> str:
    return " x ".join(str(size) for _, size in mesh.axes)


if __name__ == "__main__":
    print(table(HEAD, list(rows())))
