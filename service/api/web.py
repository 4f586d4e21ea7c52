"""The web server: socket, uvicorn, signals, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Generator, Iterator
from typing import Any

import uvicorn
from fastapi import FastAPI

from shardc.hlo.errors import EnvironmentProblem
from shardc.service.api.connection import TimedConnection
from shardc.service.api.context import Ending

__all__ = ["listen", "run_web", "url_of"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))
_LAST_SECONDS = 5  # that answers under way have when everything else has ended


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens at ``host`` (a name or address) and ``port`` (0: one that is free)."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, protocol)
    except OSError as error:
        raise EnvironmentProblem(f"the address {host!r} cannot be used: {error.strerror}", where="--host") from None
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(512)
    except OSError as error:
        made.close()
        fix = "give another --port, or 0 for a free one"
        raise EnvironmentProblem(f"cannot listen at {host}:{port}: {error.strerror}", fix=fix) from None
    return made


def url_of(listening: socket.socket) -> str:
    """``http://127.0.0.1:8377``, for whoever is on this computer."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Server(uvicorn.Server):
    """Leaves signals to us: jobs are to end before connections do."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def run_web(
    app: FastAPI,
    listening: socket.socket,
    ending: Ending,
    end_jobs: Callable[[bool], None],
    ready: Callable[[], None],
) -> None:
    """Serve until a signal comes: SIGTERM, SIGINT, or SIGHUP (the terminal has gone; not under nohup).

    ``ready`` is called when requests are answered. At a signal new orders are refused, and ``end_jobs(False)``, in a
    thread, lets running jobs end while requests are still answered; a second signal calls ``end_jobs(True)`` beside
    it, which is to hurry. Then whoever waits for a job is told, and connections are closed.
    """
    config = uvicorn.Config(
        app,
        http=TimedConnection,
        loop="asyncio",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=64 * 1024,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_LAST_SECONDS,
    )
    asyncio.run(_run(_Server(config), listening, ending, end_jobs, ready))


async def _run(
    server: uvicorn.Server,
    listening: socket.socket,
    ending: Ending,
    end_jobs: Callable[[bool], None],
    ready: Callable[[], None],
) -> None:
    signals: asyncio.Queue[int] = asyncio.Queue()
    with _queue_signals(signals):
        serving = asyncio.ensure_future(server.serve(sockets=[listening]))
        while not server.started:
            if serving.done():
                await serving
            await asyncio.sleep(0.01)
        ready()
        await _first(serving, asyncio.ensure_future(signals.get()))
        ending.draining = True
        finishing = asyncio.ensure_future(asyncio.to_thread(end_jobs, False))
        while not await _first(finishing, asyncio.ensure_future(signals.get())):
            await asyncio.to_thread(end_jobs, True)
        ending.over.set()
        server.should_exit = True
        await serving
        await finishing


async def _first(task: asyncio.Future[Any], other: asyncio.Future[Any]) -> bool:
    """Wait for one of the two; whether ``task`` is done. The other is cancelled."""
    await asyncio.wait((task, other), return_when=asyncio.FIRST_COMPLETED)
    other.cancel()
    return task.done()


@contextlib.contextmanager
def _queue_signals(signals: asyncio.Queue[int]) -> Iterator[None]:
    """Within the block signals come into the queue. In a thread other than the first none do."""
    loop = asyncio.get_running_loop()
    before: dict[signal.Signals, Any] = {}
    try:
        for number in _SIGNALS:
            with contextlib.suppress(ValueError, RuntimeError):
                held = signal.getsignal(number)
                if number not in (signal.SIGINT, signal.SIGTERM) and held is signal.SIG_IGN:
                    continue
                loop.add_signal_handler(number, signals.put_nowait, number)
                before[number] = held
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
