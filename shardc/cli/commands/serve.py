"""``shardc serve``: the compile service."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardc.cli.options import JsonOption, QuietOption, VerboseOption, parse_bytes
from shardc.cli.view import View

if TYPE_CHECKING:
    from shardc.service.serve import Serving

__all__ = ["parse_size", "serve"]

#: Seconds that nobody waits; more (infinity) is a mistake.
_YEAR = 31_536_000.0


def serve(
    *,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; others than this computer's require tokens.")
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one.")] = 8377,
    store: Annotated[
        str, typer.Option("--store", metavar="DIR|URL", help="Store of results: a folder, or s3://BUCKET/PREFIX.")
    ] = "",
    state: Annotated[
        Path | None, typer.Option("--state", metavar="DIR", help="Jobs, index and key; default: in the store's folder.")
    ] = None,
    workers: Annotated[
        int,
        typer.Option("--workers", min=0, help="Jobs at a time; 0: one per core. Under mpirun, the other ranks work."),
    ] = 0,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="F", help="File of tokens; made with a first token if missing."),
    ] = None,
    dask: Annotated[
        str, typer.Option("--dask", metavar="ADDRESS", help="Run jobs on the workers of this Dask scheduler.")
    ] = "",
    store_size: Annotated[
        str,
        typer.Option(
            "--store-size", metavar="SIZE", help="Size limit; evicts the least recently used results; 0: no limit."
        ),
    ] = "10G",
    max_upload: Annotated[
        str, typer.Option("--max-upload", metavar="SIZE", help="Size limit of an uploaded program.")
    ] = "64M",
    time_limit: Annotated[
        float, typer.Option("--time-limit", min=1.0, max=_YEAR, metavar="S", help="Time limit of a job.")
    ] = 600.0,
    memory_limit: Annotated[
        str, typer.Option("--memory-limit", metavar="SIZE", help="Memory limit of a job; 0: no limit.")
    ] = "8G",
    queue: Annotated[
        int, typer.Option("--queue", min=1, help="Largest number of waiting orders; equal ones count once.")
    ] = 1000,
    grace: Annotated[
        float,
        typer.Option(
            "--grace",
            min=0.0,
            max=_YEAR,
            metavar="S",
            help="Time that running jobs get to finish when the server stops.",
        ),
    ] = 30.0,
    json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Serve compilations, simulations and explanations over HTTP, with a page for browsers; until Ctrl-C.

    Results are made once and kept by content. With --json, one line on stdout has the address.
    Example: shardc serve --port 8377 --token-file tokens
    """
    from shardc.hlo.errors import InputError
    from shardc.launcher.executors.limits import TaskLimits
    from shardc.service.folders import default_state, default_store
    from shardc.service.serve import ServeSettings
    from shardc.service.serve import serve as run

    view = View(json=False, verbose=verbose, quiet=quiet)
    if quiet and token_file is not None and not token_file.exists():
        fix = "start the server once without --quiet, or write a token into the file"
        raise InputError("the new token would not be shown", where="--quiet", fix=fix)
    place = store or str(default_store())
    settings = ServeSettings(
        store=place,
        state=state or default_state(place),
        host=host,
        port=port,
        workers=workers,
        token_file=token_file,
        store_bytes=parse_size(store_size, "--store-size"),
        max_upload=parse_size(max_upload, "--max-upload"),
        limits=TaskLimits(seconds=time_limit, memory_bytes=parse_size(memory_limit, "--memory-limit")),
        queue=queue,
        dask=dask,
        grace=grace,
    )

    def ready(serving: Serving) -> None:
        if json:
            import json as as_json

            print(as_json.dumps(asdict(serving)), flush=True)

    run(settings, ready, view.log, view.detail if verbose else None)


def parse_size(text: str, where: str) -> int:
    """``10G`` or ``512MiB`` as bytes, ``0`` for no limit. Raises `InputError`."""
    return 0 if text.strip() == "0" else int(parse_bytes(text or " ", where, f"{where} 10GB, 64MiB") or 0)
