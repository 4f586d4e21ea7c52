"""``shardc demo``: the bundled training step from program to checked results on MPI ranks."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.demo.export import bundled_module, export
from shardc.demo.setup import example_inputs
from shardc.hlo.config import Config
from shardc.hlo.errors import EnvironmentProblem, InputError, RunError
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.ir import Module
from shardc.hlo.units import bytes_text, count_text, flops_text
from shardc.launcher.drawings.draw_layout import sharding_svg
from shardc.launcher.run.output_files import write_text
from shardc.partitioner.equivalence import Agreement, agree
from shardc.stages.stages import Partitioned, Program

__all__ = ["DRAWN", "ComparisonTable", "run_demo", "show_with"]

#: The parameter that the picture shows.
DRAWN = "state['params']['layers'][0]['w1']"

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class ComparisonTable:
    """Something to show: ``rows`` of text under ``columns``."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def run_demo(
    show: Callable[[str | ComparisonTable], None],
    *,
    ranks: int = 4,
    seed: int = 0,
    picture: Path | None = None,
    use_jax: bool | None = None,
) -> dict[str, Any]:
    """Run the demo, telling its parts to ``show`` as they come; returns everything as plain data.

    The step is exported from JAX when it is installed (``use_jax`` forces or forbids it), partitioned over a 2x2
    mesh, and run on ``ranks`` MPI ranks (0: virtual devices in this process). Loss and every updated array are
    compared with the unpartitioned step. ``picture`` is where to draw a parameter as SVG. ``agrees`` in the result
    says how it went; raises InputError for more ranks than devices, EnvironmentProblem without
    MPI, RunError when the job fails.
    """
    module, origin = _program(use_jax)
    devices = module.mesh.size if module.mesh is not None else 1
    if ranks > devices:
        raise InputError(
            f"the demo runs on {count_text(devices, 'device')}, but --ranks is {ranks}",
            fix=f"use --ranks 0 to {devices}",
        )
    show(
        f"A training step of a 2-layer transformer ({origin}): "
        f"{count_text(_count(module), 'instruction')}, mesh {module.mesh}."
    )
    partitioned = Program(module).partition()
    report = partitioned.report()
    show(_collectives(report))
    sent, done = bytes_text(report["wire_bytes"]), flops_text(report["flops"])
    show(f"Each device sends {sent} and computes {done} per step.")
    if picture is not None:
        _draw(partitioned.propagated.module, picture)
        show(f"{DRAWN} over the mesh: {picture}")
    arguments = example_inputs(module.arg_names, seed)
    start = time.perf_counter()
    got = _run(partitioned, arguments, ranks)
    where = f"{ranks} MPI ranks" if ranks else f"{partitioned.num_devices} virtual devices"
    show(f"Compiled and ran one step on {where} in {time.perf_counter() - start:.1f} s.")
    checks = _compare(module, arguments, got)
    show(_agreement(module, checks))
    agrees = all(c.ok for c in checks)
    loss = float(got[-1])
    show(f"loss {loss:.6f}: " + ("everything agrees with the unpartitioned step." if agrees else "RESULTS DIFFER."))
    return {
        "agrees": agrees,
        "loss": loss,
        "origin": origin,
        "ranks": ranks,
        "report": report,
        "results": [
            {"name": name, "agrees": c.ok, "error": c.error, "bound": c.bound}
            for name, c in zip(module.result_names, checks, strict=True)
        ],
    }


def _program(use_jax: bool | None) -> tuple[Module, str]:
    if use_jax is not False:
        try:
            return export(), "exported from JAX just now"
        except EnvironmentProblem:
            if use_jax:
                raise
    return bundled_module(), "the bundled copy, JAX is not installed" if use_jax is None else "the bundled copy"


def _count(module: Module) -> int:
    return sum(1 for _ in module.instructions())


def _collectives(report: dict[str, Any]) -> ComparisonTable:
    rows = tuple(
        (
            c["op"],
            " ".join(c["axes"]),
            str(c["group_size"]),
            str(c["count"]),
            bytes_text(c["payload_bytes"]),
            c["source"].rsplit("/", 1)[-1],
            _short(c["reason"]),
        )
        for c in report["collectives"]
    )
    return ComparisonTable(
        "Collectives that were inserted", ("op", "over", "group", "times", "data", "source", "because"), rows
    )


def _short(reason: str) -> str:
    """The first of several reasons, and how many more there are."""
    first, *more = reason.split("; ")
    return first + (f" (and {len(more)} more like it)" if more else "")


def _draw(module: Module, picture: Path) -> None:
    parameter = module.parameters[module.arg_names.index(DRAWN)]
    write_text(picture, sharding_svg(DRAWN, parameter.shape, parameter.axis_sharding))


def _run(partitioned: Partitioned, arguments: Sequence[Array], ranks: int) -> list[Array]:
    """The flattened results of one step."""
    compiled = partitioned.compile()
    if not ranks:
        return [np.asarray(r) for r in compiled.run(list(arguments))]
    from shardc.launcher.run.task import RunTask, start_ranks

    with tempfile.TemporaryDirectory(prefix="shardc-demo-") as folder:
        inputs, outputs = Path(folder) / "in.npz", Path(folder) / "out.npz"
        named: dict[str, Any] = {f"in{i}": a for i, a in enumerate(arguments)}
        np.savez(inputs, **named)
        task = RunTask(inputs=str(inputs), outputs=str(outputs))
        code = start_ranks(compiled.executable, task, ranks, Config.from_environment(), ("--silent",))
        if code:
            raise RunError(f"the job on {count_text(ranks, 'rank')} ended with exit code {code}")
        with np.load(outputs, allow_pickle=False) as file:
            return [file[f"out{i}"] for i in range(len(partitioned.module.results))]


def _compare(module: Module, arguments: Sequence[Array], got: Sequence[Array]) -> list[Agreement]:
    want = evaluate(module, arguments)
    reference = evaluate(module, arguments, float64=True)
    return [agree(g, w, r) for g, w, r in zip(got, want, reference, strict=True)]


def _agreement(module: Module, checks: Sequence[Agreement]) -> ComparisonTable:
    """Loss and parameters one by one, the moments together."""
    rows = []
    moments = []
    for name, shape, check in zip(module.result_names, module.results, checks, strict=True):
        if "['mean']" in name or "['variance']" in name:
            moments.append(check)
            continue
        label = name.replace("result[0]", "state").replace("result[1]", "loss")
        rows.append((label, str(shape), *_cells([check])))
    rows.append((f"Adam's moments, {len(moments)} arrays", "", *_cells(moments)))
    columns = ("result", "shape", "error", "allowed", "agrees")
    return ComparisonTable(
        "Compared with the unpartitioned step (largest difference / largest value; reference: float64)",
        columns,
        tuple(rows),
    )


def _cells(checks: Sequence[Agreement]) -> tuple[str, str, str]:
    worst = max(checks, key=lambda c: (not c.ok, c.error))
    return (f"{worst.error:.1e}", f"{worst.bound:.1e}", "yes" if all(c.ok for c in checks) else "NO")


def show_with(view: Any) -> Callable[[str | ComparisonTable], None]:
    """Show the demo's parts through a `shardc.cli.view.View`."""

    def show(part: str | ComparisonTable) -> None:
        if isinstance(part, str):
            view.text(part)
        else:
            view.table(part.title, part.columns, part.rows)
        view.text("")

    return show
