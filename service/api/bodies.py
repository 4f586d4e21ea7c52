"""Request bodies: reads them within limits of size, type and speed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import ClientDisconnect, Request

from shardc.hlo.errors import InputError, RunError
from shardc.service.api.problems import Refusal

__all__ = ["BodyBudget", "body_of", "content_type"]

#: Bytes of a body that have to come in the time that is left to it.
_PACE = 1024


def content_type(request: Request, *allowed: str) -> str:
    """The media type of the body; refused with 415 when it is none of ``allowed``, or the body is compressed."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in allowed:
        what = f"bodies of type {given[:100]!r} are not accepted" if given else "the body has no type"
        raise Refusal(415, InputError(what, where="Content-Type", fix=f"send {' or '.join(allowed)}"))
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        raise Refusal(
            415,
            InputError(
                f"bodies encoded as {coding[:100]!r} are not accepted",
                where="Content-Encoding",
                fix="send it without encoding",
            ),
        )
    return given


class BodyBudget:
    """Memory for the bodies of all requests together: ``left`` bytes of it are free."""

    def __init__(self, total: int) -> None:
        self.left = total


@asynccontextmanager
async def body_of(request: Request, limit: int, stall_seconds: float, budget: BodyBudget) -> AsyncIterator[bytes]:
    """The whole body, within the block.

    Refused with 413 as soon as it is longer than ``limit`` bytes, whatever its length is said to be, with 408 when
    nothing comes for ``stall_seconds``, and with 503 when all bodies together need more than ``budget`` has.
    """
    said = request.headers.get("content-length", "")
    if said.isdigit() and len(said) < 20 and int(said) > limit:
        raise _too_large(limit)
    data = bytearray()
    try:
        async for part in _parts(request, stall_seconds):
            data += part
            budget.left -= len(part)
            if len(data) > limit:
                raise _too_large(limit)
            if budget.left < 0:
                error = RunError("too many uploads are in progress", fix="try again in a moment")
                raise Refusal(503, error, {"Retry-After": "1"})
        yield bytes(data)
    finally:
        budget.left += len(data)


async def _parts(request: Request, stall_seconds: float) -> AsyncIterator[bytes]:
    """The body as it comes; `_PACE` bytes (or the rest) have to come within ``stall_seconds``, again and again."""
    clock = asyncio.get_running_loop().time
    stream, end, came = request.stream(), clock() + stall_seconds, 0
    while True:
        try:
            async with asyncio.timeout_at(end):
                part = await anext(stream, None)
        except TimeoutError:
            what = f"the upload is too slow: fewer than {_PACE} bytes arrived in {stall_seconds:g} s"
            raise Refusal(408, InputError(what, where="body"), {"Connection": "close"}) from None
        except ClientDisconnect:
            raise Refusal(400, InputError("the client closed the connection", where="body")) from None
        if part is None:
            return
        came += len(part)
        if came >= _PACE:
            end, came = clock() + stall_seconds, 0
        yield part


def _too_large(limit: int) -> Refusal:
    """What still comes of the body is dropped by the connection, so that who sends it hears the answer."""
    what = f"the body exceeds this server's limit of {limit:,} bytes"
    fix = "send less, or ask the operator to raise the limit (--max-upload of shardc serve)"
    return Refusal(413, InputError(what, where="body", fix=fix), limit=limit)
