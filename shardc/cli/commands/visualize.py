"""``shardc visualize``: how a tensor lies over the mesh."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
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
    open_program,
)
from shardc.cli.view import View

__all__ = ["visualize"]


def visualize(
    file: FileArgument,
    *,
    value: Annotated[
        list[str], typer.Option("--value", metavar="NAME", help="The value to draw, or a glob such as '*'. Repeatable.")
    ],
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="OUT.svg", help="Write the picture of the (one) value here.")
    ] = None,
    mesh: MeshOption = "",
    annotate: AnnotateOption = None,
    annotations: AnnotationsOption = None,
    json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Show how a tensor is split over the mesh: each device's part, as a table or an SVG picture.

    Example: shardc visualize step.mlir --value w1 --svg w1.svg
    """
    from shardc.hlo.errors import InputError
    from shardc.launcher.drawings.draw_layout import picture_svg
    from shardc.launcher.drawings.layout_picture import layouts, make_picture
    from shardc.launcher.run.output_files import check_outputs, write_text

    view = View(json, verbose, quiet)
    check_outputs(file, annotations, svg=svg)
    propagated = open_program(file, mesh, annotate, annotations).propagate()
    pictures = [make_picture(*leaf) for name in value for leaf in layouts(propagated.module, name)]
    if svg is not None:
        if len(pictures) != 1:
            raise InputError(f"{len(pictures)} pictures cannot go to one file", where="--svg", fix="give one --value")
        write_text(svg, picture_svg(pictures[0]))
        view.log(f"Wrote {svg}")
    if svg is None or json:
        view.result([asdict(p) for p in pictures], lambda: _show_all(view, pictures))


#: Columns of a terminal in which every table has room.
_WIDEST = 1 << 20


def _show_all(view: View, pictures: Sequence[Any]) -> None:
    for picture in pictures:
        _show(view, picture)


def _show(view: View, picture: Any) -> None:
    """Title and facts, then a table per panel; coloured by part on a terminal."""
    from shardc.launcher.drawings.draw_layout import picture_table

    view.text("\n".join([picture.title, *(f"  {fact}" for fact in picture.facts)]))
    for panel in picture.panels:
        if panel is None:
            view.text("...")
            continue
        titles, rows = picture_table(picture, panel)
        if not sys.stdout.isatty() or not _draw(panel.label, titles, rows):
            view.table(panel.label, titles, [[text for text, _ in row] for row in rows])


def _draw(label: str, titles: list[str], rows: list[list[tuple[str, int]]]) -> bool:
    """Draw a table if the terminal is so wide that no cell is broken; returns whether it is."""
    from rich.console import Console
    from rich.style import Style
    from rich.table import Table
    from rich.text import Text

    from shardc.launcher.drawings.draw_layout import shard_colour

    table = Table(title=Text(label) if label else None, title_justify="left", show_lines=True)
    for title in titles:
        table.add_column(Text(title), justify="center", no_wrap=True)
    for row in rows:
        cells = []
        for text, shard in row:
            colour = shard_colour(shard) if shard >= 0 else None
            cells.append(Text(f" {text} ", Style(color="white", bgcolor=colour, bold=True) if colour else Style()))
        table.add_row(*cells)
    console = Console()
    fits: bool = console.measure(table, options=console.options.update(max_width=_WIDEST)).maximum <= console.width
    if fits:
        console.print(table)
    return fits
