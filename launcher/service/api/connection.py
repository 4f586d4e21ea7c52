"""Connections that do not wait for ever: the head of a request has to come within a bound.

Uvicorn bounds the time between requests; whoever sends a header letter by letter would hold a connection as long as
they like.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["PatientConnection"]


class PatientConnection(H11Protocol):
    """Closes itself when a request's head takes longer than ``head_seconds``, from its first byte or the connection's
    beginning."""

    head_seconds = 15.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wind()

    def data_received(self, data: bytes) -> None:
        if self._between_requests() and self._clock is None:
            self._wind()
        super().data_received(data)
        if not self._between_requests():
            self._stop()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wind(self) -> None:
        self._clock = self.loop.call_later(self.head_seconds, self._too_late)

    def _stop(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _too_late(self) -> None:
        self._clock = None
        if self._between_requests() and not self.transport.is_closing():
            self.transport.close()
