"""A fork server for MLIR: a process that has jaxlib loaded and forks for each request.

Loading jaxlib takes a quarter of a second, reading most programs a few milliseconds. So the process that has loaded it
stays: it forks for each request, and what a damaged file does to its reader ends the fork, neither us nor the next
request. It goes when nobody asked for a minute, and with this process.

Every request has a time, after which whatever answers it is killed. A reader that hangs is asked once more: by a fresh
process, which does not fork.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import selectors
import signal
import struct
import subprocess
import sys
import threading
import time
import weakref
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["Answer", "ForkServerGone", "ask"]

#: Bytes that are read at a time.
_PIECE = 1 << 20
#: Seconds over what a request may take, for starting and loading, until the process itself is taken to hang.
_GRACE = 30.0


class ForkServerGone(Exception):
    """The process ended by itself before it had the request."""


@dataclass(frozen=True, slots=True)
class Answer:
    """``code``: 0, or how the fork ended (as `subprocess.Popen.returncode`; minus SIGALRM: its time was over),
    ``data``: what it wrote, ``said``: on stderr."""

    code: int
    data: bytes
    said: str


class _ForkServer:
    """One process that runs ``script``; one request at a time. ``alone``: it answers one by itself, without a fork."""

    def __init__(self, script: Path, path: list[str], *, alone: bool = False) -> None:
        self._end, end = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(script), str(end)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(end,),
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # a process with threads is none to fork
                bufsize=0,
            )
        except BaseException:
            os.close(self._end)
            raise
        finally:
            os.close(end)
        self.made_of = script, path
        self._over = weakref.finalize(self, _finish, self._process, self._end)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
        #: What it has not read yet.
        self._left = _message({"path": path, "alone": alone})

    @property
    def ready(self) -> bool:
        """Whether the server can take a request."""
        return self._over.alive and self._process.poll() is None

    def ask(self, request: dict[str, Any], seconds: float) -> Answer:
        """What becomes of ``request``; `ForkServerGone`. After that it is good for nothing."""
        whole = False
        try:
            self._left += _message({**request, "seconds": seconds, "limits": _limits()})
            answer = self._hear(time.monotonic() + seconds + _GRACE)
            whole = True
            return answer
        finally:
            if not whole:
                self.end()

    def end(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._over()

    def _send(self, stdin: int) -> bool:
        """Send as much as the server takes now. Returns whether there is more."""
        with contextlib.suppress(BlockingIOError):
            try:
                del self._left[: os.write(stdin, memoryview(self._left)[:_PIECE])]
            except BrokenPipeError:  # how it ended is heard
                self._left.clear()
        return bool(self._left)

    def _hear(self, until: float) -> Answer:
        """Its streams until it says how the request ended, or ends itself."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        out, err, stdin = self._process.stdout.fileno(), self._process.stderr.fileno(), self._process.stdin.fileno()
        heard: dict[int, list[bytes]] = {out: [], err: [], self._end: []}
        with selectors.DefaultSelector() as selector:
            for source in heard:
                selector.register(source, selectors.EVENT_READ)
            if self._send(stdin):
                selector.register(stdin, selectors.EVENT_WRITE)
            while selector.get_map():
                found = selector.select(until - time.monotonic())
                if not found:
                    self.end()
                    return Answer(-signal.SIGALRM, b"", "")
                for key, _ in found:
                    if key.fd == stdin:
                        if not self._send(stdin):
                            selector.unregister(stdin)
                        continue
                    piece = os.read(key.fd, _PIECE)
                    if piece:
                        heard[key.fd].append(piece)
                    else:
                        selector.unregister(key.fd)
                if heard[self._end]:
                    break
        for source in (out, err):  # all that was written before is in the pipes
            heard[source] += _rest(source)
        data, said = b"".join(heard[out]), b"".join(heard[err]).decode(errors="replace").strip()
        if heard[self._end]:
            return Answer(struct.unpack("<i", b"".join(heard[self._end]))[0], data, said)
        self._over()
        code = self._process.returncode
        if code == 0 and not data:  # it went to rest as it was asked
            raise ForkServerGone
        return Answer(code, data, said)


def _message(content: dict[str, Any]) -> bytearray:
    data = marshal.dumps(content)
    return bytearray(struct.pack("<Q", len(data)) + data)


def _rest(source: int) -> list[bytes]:
    """What can be read without waiting."""
    found = []
    with contextlib.suppress(BlockingIOError):
        while piece := os.read(source, _PIECE):
            found.append(piece)
    return found


def _limits() -> list[tuple[int, int]]:
    """What this process may take now: a fork may take no more, also of a process that was started before."""
    import resource

    kinds = (resource.RLIMIT_CPU, resource.RLIMIT_DATA, resource.RLIMIT_AS, resource.RLIMIT_FSIZE)
    return [(kind, resource.getrlimit(kind)[0]) for kind in kinds]


def _finish(process: subprocess.Popen[bytes], end: int) -> None:
    """Close its streams, at which it ends."""
    os.close(end)
    for stream in (process.stdin, process.stdout, process.stderr):
        assert stream is not None
        stream.close()
    try:
        process.wait(5.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class _ForkServers:
    """Processes to lend: each request has one of its own, and one stays when nobody asks."""

    def __init__(self) -> None:
        self._idle: list[_ForkServer] = []
        self._lock = threading.Lock()

    def ask(self, script: Path, path: list[str], request: dict[str, Any], seconds: float) -> Answer:
        server = self._take(script, path)
        try:
            try:
                answer = server.ask(request, seconds)
            except ForkServerGone:
                server = _ForkServer(script, path)
                answer = server.ask(request, seconds)
        finally:
            self._keep(server)
        if answer.code != -signal.SIGALRM:
            return answer
        fresh = _ForkServer(script, path, alone=True)
        try:
            return fresh.ask(request, seconds)
        finally:
            fresh.end()

    def _take(self, script: Path, path: list[str]) -> _ForkServer:
        with self._lock:
            server = self._idle.pop() if self._idle else None
        if server is not None and server.ready and server.made_of == (script, path):
            return server
        if server is not None:
            server.end()
        return _ForkServer(script, path)

    def _keep(self, server: _ForkServer) -> None:
        with self._lock:
            if server.ready and not self._idle:
                self._idle.append(server)
                return
        server.end()


@cache
def _fork_servers(process: int) -> _ForkServers:
    """Those of this process: a fork of it has its own."""
    return _ForkServers()


def ask(script: Path, request: dict[str, Any], seconds: float) -> Answer:
    """What a process that runs ``script`` makes of ``request`` (plain data) within ``seconds``, which a fresh one has
    again when they are over; `ForkServerGone`.

    Example: ``ask(Path("worker.py"), {"do": "read", "data": b"module {}"}, 60.0).code``.
    """
    return _fork_servers(os.getpid()).ask(script, [p for p in sys.path if p], request, seconds)
