"""Writes the reference of the command line from what the commands say of themselves: `shardc COMMAND --help`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from shardc.cli.app import app

__all__ = ["command_sections", "setup"]

#: Stands in docs/reference/cli.md where the sections go.
MARK = "<!-- commands -->"
#: Where the docs tell more of a command.
GUIDES = {
    "propagate": ("Where shardings come from", "../cli.md#where-shardings-come-from"),
    "partition": ("Mesh and annotations", "../cli.md#mesh-and-annotations"),
    "run": ("Inputs and outputs", "../cli.md#inputs-and-outputs"),
    "compile": ("Ahead of time", "../cli.md#ahead-of-time"),
    "mpiexec": ("Jobs", "../cli.md#jobs"),
    "bench": ("Bench", "../cli.md#bench"),
    "simulate": ("Simulate", "../simulate.md"),
    "sweep": ("Sweeps", "../simulate.md#sweeps"),
    "auto": ("Auto", "../auto.md"),
    "calibrate": ("This computer", "../simulate.md#this-computer-calibrate"),
    "explain": ("Explain", "../explain.md"),
    "check": ("Budgets", "../budgets.md"),
    "report": ("The report page", "../explain.md#the-report-page"),
    "visualize": ("Start", "../start.md#see-where-a-tensor-is"),
    "verify": ("Command line", "../cli.md"),
    "opt": ("Passes", "../cli.md#passes"),
    "ops": ("Add an operation", "../internals/add-an-op.md"),
    "devices": ("GPU", "../gpu.md"),
    "serve": ("The service", "../service.md"),
    "demo": ("Start", "../start.md"),
}


def command_sections() -> str:
    """One section for each command, as Markdown: what it does, an example, its arguments and options."""
    commands = get_command(app).commands  # type: ignore[attr-defined]
    return "\n".join("\n".join(_section(name, command)) for name, command in commands.items())


def _section(name: str, command: Any) -> Iterator[str]:
    text, _, example = command.help.partition("Example: ")
    guide, address = GUIDES[name]
    yield f"## {name}\n"
    yield f"{_plain(' '.join(text.split()))} More: [{guide}]({address}).\n"
    if example:
        yield f"```sh\n{example.strip()}\n```\n"
    rows = [_row(parameter) for parameter in command.params if not parameter.hidden]
    if rows:
        yield "| option | default | meaning |\n| --- | --- | --- |"
        yield from rows
        yield ""


def _row(parameter: Any) -> str:
    value = "" if getattr(parameter, "is_flag", False) else parameter.metavar or ""
    if parameter.param_type_name == "argument":
        spelled = f"`{value}`"
    else:
        names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
        spelled = f"{names} `{value}`" if value else names
    default = "required" if parameter.required else _default(parameter.default)
    cells = (spelled, default, _plain(parameter.help or ""))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(value: object) -> str:
    if value is None or value is False or value in ("", [], ()) or "UNSET" in repr(value):
        return ""
    return "on" if value is True else f"`{value}`"


def _plain(text: str) -> str:
    """Help without the escapes of the terminal's markup, and as Markdown that shows it as it is."""
    shown = re.sub(r"([<>*_\[\]])", r"\\\1", text.replace("\\[", "["))
    return re.sub(r"(?<![\w`-])(--[a-z][\w-]*)", r"`\1`", shown)


def setup(application: Any) -> dict[str, bool]:
    """Called by Sphinx: the mark in a page becomes the sections when the page is read."""

    def fill_in(_application: object, page: str, content: list[str]) -> None:
        if page == "reference/cli":
            content[0] = content[0].replace(MARK, command_sections())

    application.connect("source-read", fill_in)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
