"""``python -m shardc.cli.rank PROGRAM TASK [--json] [-v] [-q] [--silent]``: one rank of ``shardc run --ranks N``."""

from __future__ import annotations

import sys
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace

from shardc.cli.commands.run import show_outcome
from shardc.cli.shown_warnings import shown_warnings
from shardc.cli.view import View, rank
from shardc.compiler.cache.serialize import load_executable
from shardc.hlo.config import Config
from shardc.launcher.run.task import RunTask, run_task

__all__ = ["main"]


def main(arguments: list[str]) -> None:
    program, task, *flags = arguments
    view = View("--json" in flags, "-v" in flags, "-q" in flags)
    # Whoever started the ranks has the program, and checks what they give.
    config = replace(Config.from_environment(), check=False)
    with shown_warnings("-q" in flags or rank() > 0):
        outcome = run_task(load_executable(program), RunTask.parse(task), config)
    if "--silent" not in flags:
        with redirect_stdout(sys.stderr) if RunTask.parse(task).outputs == "-" else nullcontext():
            show_outcome(view, outcome)


if __name__ == "__main__":
    main(sys.argv[1:])
