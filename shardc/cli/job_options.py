"""Options of commands that start MPI jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from shardc.launcher.jobs.mpiexec import JobOptions

__all__ = ["BindOption", "HostfileOption", "HostsOption", "LauncherOption", "PrefixOption", "job_options"]

HostsOption = Annotated[str | None, typer.Option("--hosts", metavar="A:2,B:2", help="Hosts, with ranks on each.")]
HostfileOption = Annotated[
    Path | None, typer.Option("--hostfile", metavar="FILE", help="File of hosts, one per line: a, a:2 or a slots=2.")
]
BindOption = Annotated[
    str, typer.Option("--bind", metavar="HOW", help="auto (equal shares of the cores), core, numa or none.")
]
PrefixOption = Annotated[
    bool, typer.Option("--prefix", "--tag-output", help="Print whole lines of output, each after its rank.")
]
LauncherOption = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="WORD", help="Argument passed to the launcher unchanged. Repeatable."),
]


def job_options(
    hosts: str | None, hostfile: Path | None, bind: str, prefix: bool, words: list[str] | None, ranks: int = 1
) -> JobOptions:
    """What the options say of a job of ``ranks``. Raises `InputError` for hosts given twice, for what is none, and for
    options of a job where ``ranks`` is 0."""
    from shardc.hlo.errors import InputError
    from shardc.launcher.jobs.hosts import parse_hosts, read_hostfile
    from shardc.launcher.jobs.mpiexec import JobOptions

    if hosts is not None and hostfile is not None:
        raise InputError("--hosts and --hostfile exclude each other", fix="give one of them")
    given = {"hosts": hosts, "hostfile": hostfile, "bind": bind != "auto", "prefix": prefix, "option": words}
    unused = next((name for name, value in given.items() if value or value == ""), "")
    if ranks == 0 and unused:
        raise InputError(
            f"--{unused} belongs to a job, but no --ranks is given", fix=f"add --ranks 4, or omit --{unused}"
        )
    found = parse_hosts(hosts) if hosts is not None else read_hostfile(hostfile) if hostfile is not None else ()
    return JobOptions(found, bind, prefix, tuple(words or ()))
