"""Where commands do their work: here, or at a compile service (``--server``, ``SHARDC_SERVER``)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shardc.cli.options import annotated, given_annotations
from shardc.cli.view import View
from shardc.hlo.errors import UnsupportedError

if TYPE_CHECKING:
    from shardc.service.client.client import Client
    from shardc.service.jobs import Job

__all__ = ["ProgramOpener", "ServerOption", "source"]

ServerOption = Annotated[
    str,
    typer.Option("--server", metavar="URL", help="Use a compile service (shardc serve; SHARDC_SERVER)."),
]


@dataclass(frozen=True, slots=True)
class ProgramOpener:
    """Opens programs: those of the ``client`` of a service, or without one programs of this process."""

    client: Client | None = None

    def load(self, file: Path) -> Any:
        """The program in ``file``, as it is."""
        from shardc.stages.programs import load

        return load(file) if self.client is None else self.client.program(file)

    def open(
        self, file: Path, mesh: str = "", annotate: Sequence[str] | None = None, annotations: Path | None = None
    ) -> Any:
        """The program in ``file`` with the mesh and annotations of the command line, as `open_program`."""
        specs, wanted = given_annotations(mesh, annotate, annotations)
        return annotated(self.load(file), specs, wanted, None if annotate else annotations)


@contextmanager
def source(view: View, server: str, *, asked: bool = True, status: bool = True) -> Iterator[ProgramOpener]:
    """The source that ``--server`` names, or (if it is to be ``asked``) the environment: when that one is away, the
    work is done here. Without ``status`` somebody else draws on stderr.

    The same goes for settings that watch the compiler at work. Raises `EnvironmentProblem` where the ``server`` is
    away, `UnsupportedError` where it is of no use.
    """
    from shardc.hlo.config import Config

    config = Config.from_environment()
    if not server and not (asked and config.server):
        yield ProgramOpener()
        return
    from shardc.service.client.client import connect
    from shardc.service.client.terms import watches

    if reason := watches(config):
        if server:
            fix = "omit one of them"
            raise UnsupportedError(f"a compile service cannot do this: {reason}", where="--server", fix=fix)
        view.log(f"warning: {reason}; running it here")
        yield ProgramOpener()
        return
    with _telling(view, status) as hear, connect(server, hear=hear) as client:
        if not server and not _answers(client, view):
            yield ProgramOpener()
        else:
            yield ProgramOpener(client)


def _answers(client: Client, view: View) -> bool:
    """Whether the service of the environment answers. If not, a warning is logged."""
    from shardc.hlo.errors import ShardcError

    try:
        client.info()
    except ShardcError as e:
        view.log(f"warning: {e.what} ({client.address.url}); running it here")
        return False
    return True


@contextmanager
def _telling(view: View, status: bool) -> Iterator[Callable[[Job], None]]:
    """What tells of jobs: a line that changes where stderr is a terminal, and lines with ``-v``."""
    from contextlib import nullcontext

    shown = status and not view.quiet and view.is_speaker and sys.stderr.isatty()
    if shown:
        from rich.console import Console

        drawn: Any = Console(stderr=True).status("asking the compile service")
    else:
        drawn = nullcontext()
    said: list[str] = []
    with drawn as line:

        def hear(job: Job) -> None:
            text = _job_text(job)
            if shown:
                line.update(text)
            if text not in said[-1:]:
                said.append(text)
                view.detail(text)

        yield hear


def _job_text(job: Job) -> str:
    """A job in a line: ``job 17 (partition): running, propagate``."""
    more = f", {job.position} in the queue" if job.state == "queued" and job.position else ""
    if job.state == "running" and job.progress.get("stage"):
        more = f", {job.progress['stage']}"
        more += f" {job.progress['done']}/{job.progress['of']}" if job.progress.get("of") else ""
    return f"job {job.id} ({job.kind}): {job.state}{', from the store' if job.cached else more}"
