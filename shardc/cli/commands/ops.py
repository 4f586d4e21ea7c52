"""``shardc ops`` and ``shardc devices``: what this installation can do."""

from __future__ import annotations

from textwrap import fill
from typing import Annotated, Any

import typer

from shardc.cli.options import JsonOption, QuietOption, VerboseOption
from shardc.cli.view import View

__all__ = ["devices", "ops"]


def ops(
    *,
    family: Annotated[str, typer.Option("--family", help="Show only one family, such as contraction.")] = "",
    json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Show which rules each operation has, and the reason where one is missing.

    Example: shardc ops --family reduction
    """
    from shardc.analysis.op_matrix import CONCERNS, op_matrix
    from shardc.hlo.errors import InputError
    from shardc.hlo.ir.opset import FAMILIES

    if family and family not in FAMILIES:
        raise InputError(f"unknown family {family!r}", where="--family", fix=f"use one of {', '.join(FAMILIES)}")
    rows = [r.as_dict() for r in op_matrix() if not family or r.family == family]
    view = View(json, verbose, quiet)
    notes: dict[str, int] = {}
    cells = {
        name: [[r["opcode"], *(_cell(r[c], notes) for c in CONCERNS)] for r in rows if r["family"] == name]
        for name in FAMILIES
    }
    footer = "".join(
        fill(f"[{number}] {why}", _WIDEST, subsequent_indent="    ") + "\n" for why, number in notes.items()
    )

    def render() -> None:
        for name, lines in cells.items():
            if lines:
                view.table(f"{name}:", ("opcode", *CONCERNS), lines)
                view.text("\n")
        view.text(footer)

    view.result(rows, render)


#: Columns of a line. Longer cells become notes, so that it fits.
_WIDEST, _WIDEST_CELL = 100, 12


def _cell(text: str, notes: dict[str, int]) -> str:
    """A cell, with a reason or a long text moved to a numbered note."""
    if text.startswith("- "):
        word, why = "no", text[2:]
    elif text.startswith("whole ("):
        word, why = "whole", text[len("whole (") : -1]
    elif len(text) > _WIDEST_CELL:
        word, why = "yes", text
    else:
        return text
    return f"{word} [{notes.setdefault(why, len(notes) + 1)}]"


def devices(*, json: JsonOption = False, verbose: VerboseOption = False, quiet: QuietOption = False) -> None:
    """Show the hardware and software of this machine: processor, MPI library, launcher, GPUs (or why one is unusable).

    Example: shardc devices
    """
    facts = _facts()
    view = View(json, verbose, quiet)
    view.result(facts, lambda: view.table("", ("what", "found"), list(facts.items())))


def _facts() -> dict[str, Any]:
    import os
    from importlib.util import find_spec

    from shardc.hlo.errors import EnvironmentProblem
    from shardc.launcher.gpu.devices import gpu_facts
    from shardc.launcher.jobs.mpi_environment import detect_launcher, find_library, missing_library
    from shardc.launcher.jobs.mpiexec import find_mpiexec
    from shardc.native.llvm.target import host_target

    target = host_target()
    library, launcher = find_library(), detect_launcher()
    try:
        mpiexec = str(find_mpiexec(library)) if library is not None else "none"
    except EnvironmentProblem:
        mpiexec = "none"
    return {
        "processor": f"{target.cpu} ({target.triple}), vectors of {target.vector_bits} bits",
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "MPI library": library.title if library is not None else f"none: {missing_library().fix}",
        "MPI launcher": mpiexec,
        "this job": launcher.title if launcher is not None else "one process with virtual devices",
        "JAX": "installed" if find_spec("jax") is not None else "none: pip install 'shardc[jax]'",
        **gpu_facts(),
    }
