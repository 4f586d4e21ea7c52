"""Connections with time limits: for the head of a request to arrive, and for an answer to be read.

Uvicorn bounds the time between requests; whoever sends a header letter by letter, or never reads an answer, would hold
a connection, and a file in memory, as long as they like. What is refused before the application is asked is a problem
document, like all other errors.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import h11
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from shardc.hlo.errors import InputError, RunError
from shardc.service.api.problems import problem_response

__all__ = ["BufferedTransport", "TimedConnection"]

#: Bytes that are not held back for more.
_PACKET = 1 << 16
#: A line of a head that goes on with the one before, which others may read otherwise (RFC 9112, 5.2).
_FOLDED = re.compile(rb"\r?\n[ \t]")
_HEAD_END = re.compile(rb"\n\r?\n")


class BufferedTransport:
    """A transport that sends what is written in one turn of the loop at once: an answer's head and a short body are one
    packet, for which the other side wakes once."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._held = bytearray()

    def write(self, data: bytes) -> None:
        if not self._held:
            self._loop.call_soon(self._send)
        self._held += data
        if len(self._held) >= _PACKET:
            self._send()

    def close(self) -> None:
        self._send()
        self._transport.close()

    def _send(self) -> None:
        held, self._held = self._held, bytearray()
        if held:
            self._transport.write(held)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class TimedConnection(H11Protocol):
    """Ends when a request's head takes longer than ``head_seconds``, from its first byte or the connection's beginning,
    or when what was written last is not taken within ``read_seconds``. While there are ``most_connections`` or more,
    requests are told to come again."""

    head_seconds = 15.0
    read_seconds = 60.0
    most_connections = 1000

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head: asyncio.TimerHandle | None = None
        self._written: asyncio.TimerHandle | None = None
        self._asked, self.app = self.app, self._unless_refused

    async def _unless_refused(self, scope: Scope, receive: Receive, send: Send) -> None:
        if len(self.connections) >= self.most_connections:
            crowded = RunError("too many connections are open", fix="try again in a moment")
            answer = problem_response(crowded, 503, {"Retry-After": "1", "Connection": "close"})
        elif _ends_twice(scope):
            unclear = InputError(
                "the length of the request is ambiguous: Transfer-Encoding with Content-Length or HTTP/1.0",
                fix="send one of the two, and Transfer-Encoding with HTTP/1.1 only",
            )
            answer = problem_response(unclear, 400, {"Connection": "close"})
        else:
            await self._asked(scope, receive, send)
            return
        await answer(scope, receive, send)

    def send_400_response(self, msg: str) -> None:
        """What comes is no HTTP; ``msg`` says no more than that. It gets one answer: none where its request has one
        already, and no other one after this."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            answer = problem_response(InputError("the request is not HTTP"), 400, {"Connection": "close"})
            head = h11.Response(status_code=400, headers=answer.raw_headers, reason=b"Bad Request")
            for event in (head, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        if not self._between_requests():
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(BufferedTransport(transport, self.loop))  # type: ignore[arg-type]  # all that it asks of one
        self._await_head()

    def data_received(self, data: bytes) -> None:
        if self._between_requests() and self._head is None:
            self._await_head()
        super().data_received(data)
        if not self._between_requests():
            self._stop_head()

    def handle_events(self) -> None:
        if self.conn.their_state is h11.IDLE:
            head = _HEAD_END.split(self.conn.trailing_data[0], 1)[0]
            if _FOLDED.search(head):
                self.send_400_response("a folded line")
                return
        super().handle_events()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._written = self.loop.call_later(self.read_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_written()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head()
        self._stop_written()
        super().connection_lost(exc)

    def _between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _await_head(self) -> None:
        self._head = self.loop.call_later(self.head_seconds, self._too_late)

    def _too_late(self) -> None:
        self._head = None
        if self._between_requests():
            self.transport.close()

    def _stop_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _stop_written(self) -> None:
        if self._written is not None:
            self._written.cancel()
            self._written = None


def _ends_twice(scope: Scope) -> bool:
    """Whether a request says where it ends in two ways, or in one that its version of HTTP does not have. A proxy in
    between may take what follows for another request (RFC 9112, 6.1 and 6.3)."""
    names = {name for name, _ in scope["headers"]}
    return b"transfer-encoding" in names and (b"content-length" in names or scope["http_version"] == "1.0")
