"""Bodies of requests: no larger than allowed, of the right type, and coming at some speed."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import ClientDisconnect, Request

from shardc.hlo.errors import InputError
from shardc.launcher.service.api.problems import Refusal

__all__ = ["content_type", "read_body"]


def content_type(request: Request, *allowed: str) -> str:
    """The media type of the body; refused with 415 when it is none of ``allowed``."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in allowed:
        what = f"a body of type {given[:100]!r}" if given else "a body without a type"
        raise Refusal(415, InputError(what, where="Content-Type", fix=f"send {' or '.join(allowed)}"))
    return given


async def read_body(request: Request, limit: int, stall_seconds: float) -> bytes:
    """The whole body. Refused with 413 as soon as it is longer than ``limit`` bytes, whatever its length is said to
    be, and with 408 when nothing comes for ``stall_seconds``."""
    said = request.headers.get("content-length", "")
    if said.isdigit() and len(said) < 20 and int(said) > limit:
        raise _too_large(limit)
    data = bytearray()
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
            return bytes(data)
        data += part
        if len(data) > limit:
            raise _too_large(limit)


def _too_large(limit: int) -> Refusal:
    what = f"the body is longer than the {limit:,} bytes that this server takes"
    members: dict[str, Any] = {"limit": limit}
    return Refusal(413, InputError(what, where="body"), {"Connection": "close"}, **members)
