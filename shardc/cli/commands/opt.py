"""``shardc opt``: passes alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from shardc.cli.options import (
    AnnotateOption,
    AnnotationsOption,
    JsonOption,
    MeshOption,
    QuietOption,
    VerboseOption,
    given_annotations,
)
from shardc.cli.view import View, seconds_text

__all__ = ["opt"]

OptionalFile = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="HLO text, or another program that shardc reads; - for stdin.")
]
PassesOption = Annotated[
    str, typer.Option("--passes", metavar="A,B{OPTION=1},...", help="Passes and pipelines, run in this order.")
]
ListOption = Annotated[bool, typer.Option("--list-passes", help="Show all passes and pipelines with their options.")]
OutOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="OUT", help="Write to this file instead of stdout.")
]


def opt(
    file: OptionalFile = None,
    *,
    passes: PassesOption = "",
    list_passes: ListOption = False,
    output: OutOption = None,
    mesh: MeshOption = "",
    annotate: AnnotateOption = None,
    annotations: AnnotationsOption = None,
    json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run passes on a program and print it as HLO text, which this command and all others read again.

    Every pass's result is verified. Shardings and groups of devices are read over the axes of one mesh.
    Example: shardc opt step.hlo --passes='simplify,eliminate-dead,fuse{limit=8}'
    """
    from shardc.hlo.errors import InputError
    from shardc.launcher.run.output_files import check_outputs
    from shardc.passes.opt import list_passes as listed

    view = View(json, verbose, quiet)
    if list_passes:
        found = listed()
        view.result(found, lambda: _show(view, found))
        return
    if file is None or not passes:
        what = "FILE is missing" if passes else "the passes to run are missing"
        raise InputError(
            what, where="shardc opt", fix="run shardc opt FILE --passes=a,b, or list them with shardc opt --list-passes"
        )
    check_outputs(file, annotations, output=output)
    _run(view, file, passes, output, given_annotations(mesh, annotate, annotations))


def _run(view: View, file: Path, passes: str, output: Path | None, given: Any) -> None:
    import sys

    from shardc.frontends.load import load_program, read_file
    from shardc.hlo.config import Config
    from shardc.hlo.passes import PassTimes
    from shardc.hlo.text.carried import print_state
    from shardc.launcher.run.output_files import write_text
    from shardc.passes.opt import prepare_module, read_passes, run_passes

    specs, mesh = given
    asked = read_passes(passes)
    piped = str(file) == "-"
    program = load_program(sys.stdin.buffer.read() if piped else read_file(file), "<stdin>" if piped else str(file))
    module = prepare_module(program.module, specs, mesh)
    times = PassTimes()
    after = run_passes(module, asked, Config.from_environment(), times)
    for name, seconds in times.seconds.items():
        view.detail(f"{name}: {seconds_text(seconds)}")
    text = print_state(after)
    if output is not None:
        write_text(output, text)
        view.log(f"Wrote {output}")
    if view.json:
        view.result({"passes": [p.name for p in asked], "text": text}, lambda: None)
    elif output is None:
        view.text(text)


def _show(view: View, found: dict[str, Any]) -> None:
    rows = []
    for one in found["passes"]:
        rows.append((one["name"], one["why"]))
        rows += [("", f"{o['name']}: {o['type']} = {o['default']}") for o in one["options"]]
    view.table("", ("pass", "why; its options and their defaults"), rows)
    view.text("")
    rows = []
    for one in found["pipelines"]:
        rows.append((one["name"], one["why"]))
        rows += [("", f"{o['name']}: {o['type']} = {o['default']}") for o in one["options"]]
        rows.append(("", ", ".join(one["passes"])))
    view.table("", ("pipeline", "why; its options and their defaults; its passes"), rows)
