"""`shardc serve`: puts workers, store, scheduler and HTTP interface together, and takes them down."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from shardc.hlo.errors import EnvironmentProblem, InputError
from shardc.launcher.executors.limits import TaskLimits

if TYPE_CHECKING:
    from shardc.launcher.executors.running import Workers
    from shardc.service.api.tokens import TokenFile

__all__ = ["ServeSettings", "Serving", "serve"]

_OPEN_FILES = 16_384


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """What `serve` is to do. ``store`` is a folder or an fsspec URL, ``state`` a folder for what only this machine
    needs to know (jobs, index, key); ``workers`` 0: one per core. Sizes are bytes, ``grace`` the seconds that running
    jobs have when the server ends."""

    store: str
    state: Path
    host: str = "127.0.0.1"
    port: int = 8377
    workers: int = 0
    token_file: Path | None = None
    store_bytes: int = 10_000_000_000
    max_upload: int = 64_000_000
    limits: TaskLimits = field(default_factory=TaskLimits)
    queue: int = 1000
    dask: str = ""
    grace: float = 30.0


@dataclass(frozen=True, slots=True)
class Serving:
    """What is known when requests are answered: ``executor`` is ``processes``, ``mpi`` or ``dask``."""

    url: str
    pid: int
    store: str
    workers: int
    executor: str


def serve(
    settings: ServeSettings,
    ready: Callable[[Serving], None],
    say: Callable[[str], None],
    log: Callable[[str], None] | None = None,
) -> None:
    """Serve until a signal says to end. ``ready`` hears when requests are answered, ``say`` what people should know,
    and ``log`` of every request; where they cannot write (a full disk, a reader that has gone), it goes on without.

    In an MPI job all ranks call it: rank 0 serves, the others are its workers. Raises `EnvironmentProblem` for lacks
    of the machine (extras, a port that is taken, a folder that cannot be written), `InputError` for bad tokens.
    """
    _check_extras()
    _raise_open_files()
    say, log = _harmless(say), None if log is None else _harmless(log)
    from shardc.launcher.executors.open_executor import open_executor

    state = _folder(settings.state)
    environment = {"SHARDC_CACHE_DIR": str(state / "cache")}
    with ExitStack() as stack:
        workers = stack.enter_context(
            open_executor(settings.workers, settings.dask, environment=environment, prepare=("order",))
        )
        if workers is not None:
            _serve_with(workers, settings, state, ready, say, log, stack)


def _serve_with(
    workers: Workers,
    settings: ServeSettings,
    state: Path,
    ready: Callable[[Serving], None],
    say: Callable[[str], None],
    log: Callable[[str], None] | None,
    stack: ExitStack,
) -> None:
    from shardc.service.api.app import create_app
    from shardc.service.api.context import ApiSettings, Ending
    from shardc.service.api.guard import is_loopback
    from shardc.service.api.web import listen, run_web, url_of
    from shardc.service.scheduler.journal import Journal
    from shardc.service.scheduler.scheduler import Scheduler
    from shardc.service.store.server_key import server_key
    from shardc.service.store.store import Store

    if settings.token_file is None and not is_loopback(settings.host):
        fix = "give --token-file, or keep --host 127.0.0.1"
        raise InputError(
            f"without tokens, everyone who can reach {settings.host} could use the service", where="--host", fix=fix
        )
    tokens = None if settings.token_file is None else _tokens(settings.token_file, say)
    if tokens is not None:
        stack.enter_context(tokens.watched())
    listening = stack.enter_context(listen(settings.host, settings.port))
    key = server_key(state)
    store = stack.enter_context(closing(Store(settings.store, state, settings.store_bytes, key)))
    scheduler = Scheduler(store, workers, Journal(state), settings.limits, queue_limit=settings.queue)
    stack.callback(scheduler.close, 0.0)
    api = ApiSettings(
        tokens=tokens,
        max_upload=settings.max_upload,
        key=key,
        executor=workers.kind,
        workers=workers.count,
        limits=settings.limits,
        queue=settings.queue,
        log=log,
    )
    ending = Ending()
    known = Serving(url_of(listening), os.getpid(), settings.store, workers.count, workers.kind)

    def end_jobs(hurry: bool) -> None:
        if not hurry and scheduler.statistics().running:
            say(f"shardc: shutting down; running jobs get {settings.grace:g} s, a second signal stops them now")
        scheduler.close(0.0 if hurry else settings.grace)

    def begin() -> None:
        say(f"shardc: serving on {known.url}")
        ready(known)

    run_web(create_app(scheduler, store, api, ending), listening, ending, end_jobs, begin)


def _harmless(tell: Callable[[str], None]) -> Callable[[str], None]:
    """``tell``, but whether somebody can be told makes no difference to what is served."""

    def told(text: str) -> None:
        with suppress(OSError, ValueError):
            tell(text)

    return told


def _tokens(path: Path, say: Callable[[str], None]) -> TokenFile:
    from shardc.service.api.tokens import TokenFile, open_tokens

    tokens, told = open_tokens(path)
    if told:
        say(told)
    return TokenFile(path, tokens, say)


def _check_extras() -> None:
    try:
        import fastapi  # noqa: F401
        import fsspec  # noqa: F401
        import prometheus_client  # noqa: F401
        import swagger_ui_bundle  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        fix = "install the extra: pip install 'shardc[serve]'"
        raise EnvironmentProblem(f"the compile service needs a package: {error}", fix=fix) from None


def _raise_open_files() -> None:
    """Each connection is an open file, and shells allow few of them."""
    if sys.platform != "win32":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise EnvironmentProblem(
            f"the folder cannot be created: {error.strerror}", where=str(path), fix="name another folder"
        ) from None
    return path.resolve()
