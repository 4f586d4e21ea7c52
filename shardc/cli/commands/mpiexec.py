"""``shardc mpiexec``: start a job with the launcher of the MPI library that Python uses."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated

import typer

from shardc.cli.job_options import (
    BindOption,
    HostfileOption,
    HostsOption,
    LauncherOption,
    PrefixOption,
    job_options,
)
from shardc.cli.options import JsonOption, QuietOption, VerboseOption
from shardc.cli.view import View
from shardc.hlo.errors import InputError
from shardc.hlo.units import count_text

__all__ = ["mpiexec"]


def mpiexec(
    context: typer.Context,
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="A program and its arguments.")],
    *,
    ranks: Annotated[int, typer.Option("-n", "-np", "--ranks", metavar="N", help="Number of ranks.")] = 1,
    hosts: HostsOption = None,
    hostfile: HostfileOption = None,
    bind: BindOption = "auto",
    prefix: PrefixOption = False,
    option: LauncherOption = None,
    json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Start COMMAND on N ranks; an uncaught exception on one of them ends the job.

    Example: shardc mpiexec -n 4 --hosts a:2,b:2 --prefix python train.py
    """
    from shardc.launcher.jobs.mpiexec import check_script, python_command, start_job

    view = View(json, verbose, quiet)
    _check_option(command[0], context)
    check_script(command)
    line = python_command(command)
    view.detail(f"{count_text(ranks, 'rank')} of: {' '.join(line)}")
    code = start_job(ranks, line, options=job_options(hosts, hostfile, bind, prefix, option))
    if json:
        view.result({"ranks": ranks, "exit_code": code}, lambda: None)
    if code:
        raise typer.Exit(code)


def _check_option(word: str, context: typer.Context) -> None:
    """Raise `InputError` where the program would be called ``word``, which only an option is."""
    if word.startswith("-"):
        known = [name for parameter in context.command.params for name in parameter.opts if name.startswith("--")]
        near = get_close_matches(word, known, n=1)
        fix = f"did you mean {near[0]}?" if near else f"its options are {', '.join(known)}"
        raise InputError(f"shardc mpiexec has no option {word}", fix=fix)
