"""Propagation over a long program: ours beside Shardy's own pipeline in C++, run through jaxlib in the same process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import NamedSharding
from programs import transformer

import shardc
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.stablehlo.reader import read_stablehlo
from shardc.sharding.propagate import propagate

LAYERS = (25, 50, 100)
MESHES = ({"data": 2, "model": 2}, {"data": 4096, "model": 4})
#: What `propagate` does: import, propagate, tidy up; without the reshards that come afterwards.
PIPELINE = (
    "builtin.module(sdy-import-pipeline,sdy-flatten-call-graph,sdy-import-func-calls,sdy-apply-sharding-constraints,"
    "sdy-sharding-group-import,sdy-user-priority-propagate,sdy-export-named-computations,"
    "sdy-propagate-to-func-results,func.func(sdy-constant-or-scalar-merger),func.func(sdy-sink-data-flow-edges),"
    "sdy-update-non-divisible-input-output-shardings,sdy-close-shardings)"
)


def training_step(layers: int, mesh: Mesh) -> str:
    """StableHLO text of a transformer's unrolled training step."""
    case = transformer(layers=layers, batch=4096 * 4)
    over = mesh.to_jax()

    def place(spec: Any) -> Any:
        return NamedSharding(over, jax.sharding.PartitionSpec(*spec.entries))

    def shape(value: Any, sharding: Any) -> Any:
        return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=sharding)

    is_spec = {"is_leaf": lambda s: isinstance(s, shardc.P)}
    shardings = jax.tree.map(place, case.in_specs, **is_spec)
    arguments = [
        jax.tree.map(shape, value, sharding) if isinstance(value, dict) else shape(value, sharding)
        for value, sharding in zip(case.arguments, shardings, strict=True)
    ]
    with jax.sharding.use_abstract_mesh(over):
        return str(jax.jit(case.function).trace(*arguments).lower(lowering_platforms=("cpu",)).as_text())


def shardy_seconds(text: str) -> float:
    """How long Shardy's passes take over a parsed module."""
    from jax._src.interpreters import mlir
    from jaxlib.mlir import ir, passmanager

    with mlir.make_ir_context():
        module = ir.Module.parse(text)
        passes = passmanager.PassManager.parse(PIPELINE)
        passes.enable_verifier(False)
        start = time.perf_counter()
        passes.run(module.operation)
        return time.perf_counter() - start


def seconds(action: Callable[[], Any]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def rows(repeat: int = 3) -> list[tuple[str, ...]]:
    """(layers, instructions, devices, ours, Shardy, ours / Shardy) as text."""
    out = []
    for layers in LAYERS:
        for axes in MESHES if layers == LAYERS[-1] else MESHES[:1]:
            mesh = Mesh(axes)
            text = training_step(layers, mesh)
            module = read_stablehlo(text)
            count = sum(1 for _ in module.instructions())
            ours = statistics.median(seconds(lambda m=module: propagate(m)) for _ in range(repeat))
            theirs = statistics.median(shardy_seconds(text) for _ in range(repeat))
            ratio = f"{ours / theirs:.1f}"
            out.append((str(layers), f"{count:,}", f"{mesh.size:,}", f"{ours:.2f} s", f"{theirs:.2f} s", ratio))
    return out


if __name__ == "__main__":
    for row in rows():
        print(*row, sep=" | ")
