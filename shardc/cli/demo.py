"""``shardc demo``: the bundled training step, end to end."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from shardc.cli.options import JsonOption, QuietOption, VerboseOption
from shardc.cli.partition import collectives_table
from shardc.cli.view import View, seconds_text

__all__ = ["demo"]


def demo(
    *,
    from_jax: Annotated[
        bool, typer.Option("--from-jax", help="Export the step from JAX now, not the bundled copy.")
    ] = False,
    ranks: Annotated[int, typer.Option("--ranks", metavar="N", min=0, help="MPI ranks; 0: virtual devices.")] = 4,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="OUT.svg", help="Draw a tensor over the mesh.")] = None,
    json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """A transformer's training step: partitioned over a 2x2 mesh, run on 4 MPI ranks, compared with one device.

    Needs neither JAX nor a clone; without an MPI library the devices are virtual. Example: shardc demo
    """
    from shardc.launcher.atomic import check_writable, write_text
    from shardc.launcher.picture import draw_tensor

    view = View(json, verbose, quiet)
    check_writable(svg)
    program = _program(from_jax)
    view.log(f"partitioning {program.module.name} over the mesh {program.mesh}")
    partitioned = program.partition()
    report = partitioned.report()
    if not json:
        collectives_table(view, report)
    if svg is not None:
        spec = max(_specs(partitioned), key=lambda s: sum(k > 1 for k in s.sharding.num_shards()))
        write_text(svg, draw_tensor(spec.name, spec.global_shape.dims, spec.sharding))
        view.log(f"wrote {svg}")
    facts = _run_and_compare(view, program, partitioned, ranks)
    view.result({**facts, "report": report}, lambda: _render(view, facts))
    if not facts["agrees"]:
        raise typer.Exit(1)


def _program(from_jax: bool) -> Any:
    from shardc.demo.export import bundled_module, export
    from shardc.demo.setup import MESH
    from shardc.launcher.stages import Program

    return Program(export() if from_jax else bundled_module()).annotate(mesh=MESH)


def _specs(partitioned: Any) -> list[Any]:
    """Parameters that have at least two dimensions."""
    arguments = partitioned.compile().executable.arguments
    return [a for a in arguments if a.sharding is not None and len(a.global_shape.dims) > 1]


def _run_and_compare(view: View, program: Any, partitioned: Any, ranks: int) -> dict[str, Any]:
    from shardc.demo.setup import example_inputs
    from shardc.hlo.evaluate import evaluate
    from shardc.partitioner.equivalence import agree

    arguments = example_inputs(program.arg_names)
    executable = partitioned.compile().executable
    got, where = _run(view, executable, arguments, ranks)
    view.log("running the unpartitioned step in NumPy, in float32 and float64")
    want = evaluate(program.module, arguments)
    reference = evaluate(program.module, arguments, float64=True)
    results = []
    for spec, g, w, r in zip(executable.results, got, want, reference, strict=True):
        found = agree(g, w, r)
        row: dict[str, Any] = {"name": spec.name, "agrees": found.ok, "error": found.error, "bound": found.bound}
        results.append({**row, "value": float(g)} if g.ndim == 0 else row)
    return {
        "ran_on": where,
        "agrees": all(r["agrees"] for r in results),
        "results": results,
        "seconds": {**partitioned.seconds, **executable.seconds},
    }


def _run(view: View, executable: Any, arguments: list[Any], ranks: int) -> tuple[list[Any], str]:
    """Results of one step, and where it ran: MPI ranks when there is an MPI, virtual devices otherwise."""
    from shardc.hlo.config import Config
    from shardc.hlo.errors import RunError
    from shardc.launcher.mpi_environment import find_library
    from shardc.launcher.stages import Compiled
    from shardc.launcher.task import Task, start_ranks

    config = Config.from_environment()
    if ranks and find_library() is None:
        view.log("no MPI library was found (pip install 'shardc[mpich]'): the devices are virtual")
        ranks = 0
    if not ranks:
        results = Compiled(executable, config=config).run(arguments)
        return [np.asarray(r) for r in results], f"{executable.num_devices} virtual devices"
    view.log(f"running on {ranks} MPI ranks")
    with tempfile.TemporaryDirectory(prefix="shardc-demo-") as folder:
        inputs, outputs = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(inputs, **{f"in{i}": a for i, a in enumerate(arguments)})
        task = Task(str(inputs), str(outputs))
        code = start_ranks(executable, task, ranks, config, ["--silent"])
        if code:
            raise RunError(f"the ranks ended with code {code}")
        with contextlib.closing(np.load(outputs)) as file:
            return [file[f"out{i}"] for i in range(len(executable.results))], f"{ranks} MPI ranks"


def _render(view: View, facts: dict[str, Any]) -> None:
    rows = [
        (r["name"], "yes" if r["agrees"] else "NO", f"{r['error']:.1e}", f"{r['bound']:.1e}", r.get("value", ""))
        for r in facts["results"]
    ]
    view.table(f"one step on {facts['ran_on']}", ("result", "agrees", "error", "bound", "value"), rows)
    stages = ", ".join(f"{k} {seconds_text(v)}" for k, v in facts["seconds"].items())
    view.text(f"stages: {stages}")
    verdict = "every result agrees" if facts["agrees"] else "some results DIFFER"
    view.text(f"{verdict} with the unpartitioned step")
