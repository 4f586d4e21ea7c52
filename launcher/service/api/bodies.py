"""Bodies of requests: no larger than allowed, of the right type, and coming at some speed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from starlette.requests import ClientDisconnect, Request

from shardc.hlo.errors import InputError, RunError
from shardc.launcher.service.api.problems import Refusal

__all__ = ["Room", "body_of", "content_type"]

#: How much of a body that is too large is still taken off the wire, and for how long.
_DROPPED_BYTES, _DROPPING_SECONDS = 256_000_000, 2.0


def content_type(request: Request, *allowed: str) -> str:
    """The media type of the body; refused with 415 when it is none of ``allowed``."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in allowed:
        what = f"a body of type {given[:100]!r}" if given else "a body without a type"
        raise Refusal(415, InputError(what, where="Content-Type", fix=f"send {' or '.join(allowed)}"))
    return given


class Room:
    """Memory for bodies that come in, however many requests share it: ``room`` bytes are left."""

    def __init__(self, total: int) -> None:
        self.room = total


@asynccontextmanager
async def body_of(request: Request, limit: int, stall_seconds: float, room: Room) -> AsyncIterator[bytes]:
    """The whole body, within the block.

    Refused with 413 as soon as it is longer than ``limit`` bytes, whatever its length is said to be, with 408 when
    nothing comes for ``stall_seconds``, and with 503 when all bodies together need more than there is ``room``.
    """
    said = request.headers.get("content-length", "")
    parts = _parts(request, stall_seconds)
    if said.isdigit() and len(said) < 20 and int(said) > limit:
        raise await _too_large(parts, limit)
    data = bytearray()
    try:
        async for part in parts:
            data += part
            room.room -= len(part)
            if len(data) > limit:
                raise await _too_large(parts, limit)
            if room.room < 0:
                error = RunError("too much is being uploaded at a time", fix="try again in a moment")
                raise Refusal(503, error, {"Retry-After": "1", "Connection": "close"})
        yield bytes(data)
    finally:
        room.room += len(data)


async def _parts(request: Request, stall_seconds: float) -> AsyncIterator[bytes]:
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout(stall_seconds):
                part = await anext(stream, None)
        except TimeoutError:
            what = f"nothing came for {stall_seconds:g} s"
            raise Refusal(408, InputError(what, where="body"), {"Connection": "close"}) from None
        except ClientDisconnect:
            raise Refusal(400, InputError("the client went away", where="body")) from None
        if part is None:
            return
        yield part


async def _too_large(parts: AsyncIterator[bytes], limit: int) -> Refusal:
    """The refusal, after some more of the body was dropped: who still sends hears no answer on a closed connection."""
    dropped = 0
    with suppress(TimeoutError, Refusal):
        async with asyncio.timeout(_DROPPING_SECONDS):
            async for part in parts:
                dropped += len(part)
                if dropped > _DROPPED_BYTES:
                    break
    what = f"the body is longer than the {limit:,} bytes that this server takes"
    return Refusal(413, InputError(what, where="body"), {"Connection": "close"}, limit=limit)
