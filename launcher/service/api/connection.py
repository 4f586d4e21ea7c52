"""Connections that do not wait for ever: heads of requests have to come, and answers to be taken, within a bound.

Uvicorn bounds the time between requests; whoever sends a header letter by letter, or never reads an answer, would hold
a connection, and a file in memory, as long as they like.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["PatientConnection"]


class PatientConnection(H11Protocol):
    """Ends when a request's head takes longer than ``head_seconds``, from its first byte or the connection's beginning,
    or when what was written last is not taken within ``read_seconds``."""

    head_seconds = 15.0
    read_seconds = 60.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head: asyncio.TimerHandle | None = None
        self._written: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        if self._between_requests() and self._head is None:
            self._await_head()
        super().data_received(data)
        if not self._between_requests():
            self._stop_head()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP gets one answer: none where its request has one already, and no other one after this."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        super().send_400_response(msg)
        if not self._between_requests():
            self.cycle.disconnected = True
            self.cycle.message_event.set()

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
