"""``shardc explain``: why each collective is there, what would remove it, and where a value's sharding comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from shardc.cli.options import (
    AnnotateOption,
    AnnotationsOption,
    FileArgument,
    JsonOption,
    MeshOption,
    QuietOption,
    VerboseOption,
    search_text,
)
from shardc.cli.schedule_options import PlanMemoryOption, PlanOption, plan_terms
from shardc.cli.source import ProgramOpener, ServerOption, source
from shardc.cli.view import View
from shardc.hlo.errors import AnnotationError, InputError

__all__ = ["explain"]

#: ``--diff`` takes this for the program as the other options have it.
_AS_IT_IS = "-"


def explain(
    file: FileArgument,
    *,
    value: Annotated[
        list[str] | None,
        typer.Option(
            "--value",
            metavar="NAME",
            help="Explain the sharding of a value, or of all that match a glob such as '*'. Repeatable.",
        ),
    ] = None,
    mesh: MeshOption = "",
    annotate: AnnotateOption = None,
    annotations: AnnotationsOption = None,
    server: ServerOption = "",
    machine: Annotated[
        str, typer.Option("--machine", metavar="NAME[:N]", help="Give costs in seconds on this machine.")
    ] = "",
    top: Annotated[
        int, typer.Option("--top", metavar="N", min=0, help="Show the N most costly collectives; 0: all.")
    ] = 10,
    remedies: Annotated[
        int,
        typer.Option(
            "--remedies",
            metavar="N",
            min=0,
            help="Search annotations that remove the N most costly collectives.",
        ),
    ] = 3,
    tries: Annotated[
        int,
        typer.Option(
            "--tries", metavar="N", min=0, help="Annotations to try for each of them; each try partitions again."
        ),
    ] = 12,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="S", min=0, help="Start no new try after this many seconds.")
    ] = 30.0,
    threshold: Annotated[
        list[str] | None,
        typer.Option(
            "--threshold",
            metavar="NAME=SHARE",
            help="Warn from this share on: memory (0.05), wire (0.05), padding (0.1), work (0.2). Repeatable.",
        ),
    ] = None,
    diff: Annotated[
        tuple[str, str] | None,
        typer.Option("--diff", metavar="A B", help="Compare two annotation files; -: the program's own annotations."),
    ] = None,
    plan: PlanOption = "",
    memory: PlanMemoryOption = "",
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="OUT.svg", help="Draw the global plan in this file.")
    ] = None,
    json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Explain why each collective exists and what would remove it.

    With --value it explains where a value's sharding comes from. With --plan global it also shows what was chosen for
    each value, and what other choices cost.

    Example: shardc explain step.hlo --machine h100-dgx
    """
    from shardc.launcher.run.output_files import check_outputs

    view = View(json, verbose, quiet)
    check_outputs(file, annotations, picture=picture)
    planned = plan_terms(plan, memory)
    shares = _shares(threshold or ())
    if picture is not None and plan in ("", "propagated"):
        raise InputError("there is no plan to draw", where="--picture", fix="add --plan global")
    with source(view, server) as here:
        if diff is not None:
            _compare(view, here, (file, mesh, annotate, annotations), diff, machine, planned)
            return
        propagated = here.open(file, mesh, annotate, annotations).propagate()
        if value:
            stories = propagated.stories(value)
            view.result(stories, lambda: view.text("\n".join(line for s in stories.values() for line in s)))
            return
        partitioned = propagated.partition(machine=machine or None, **planned)
        if picture is not None:
            partitioned.draw_plan(picture)
            view.log(f"Wrote {picture}")
        # A service is asked once, for everything.
        if remedies and tries and (here.client is not None or partitioned.report()["collectives"]):
            view.log(search_text(remedies, seconds))
        told = partitioned.explanation(
            machine or None, remedies=remedies, tries=tries, seconds=seconds, thresholds=shares
        )
    view.result(told.to_dict(), lambda: view.text(told.as_text(top=top, verbose=verbose)))


def _shares(given: Sequence[str]) -> dict[str, float]:
    """``padding=0.2`` and the like. Raises `InputError`."""
    from shardc.analysis.explain.diagnostics.survey import thresholds_of

    shares: dict[str, float] = {}
    for text in given:
        name, _, share = text.partition("=")
        try:
            shares[name.strip()] = float(share)
        except ValueError:
            fix = "write --threshold padding=0.2"
            raise InputError(f"{text!r} is not NAME=SHARE", where="--threshold", fix=fix) from None
    thresholds_of(shares)
    return shares


def _compare(
    view: View,
    here: ProgramOpener,
    program: tuple[Path, str, Any, Any],
    sides: tuple[str, str],
    machine: str,
    planned: Mapping[str, Any],
) -> None:
    file, mesh, annotate, annotations = program
    made = []
    for side in sides:
        chosen = annotations if side == _AS_IT_IS else Path(side)
        try:
            made.append(here.open(file, mesh, annotate, chosen).partition(machine=machine or None, **planned))
        except AnnotationError as e:
            if chosen is not None and str(chosen) not in str(e.where):
                e.where = f"{chosen}, {e.where}" if e.where else str(chosen)
            raise
    found = made[0].difference(made[1], machine or None)
    view.result(found.to_dict(), lambda: view.text(found.as_text()))
