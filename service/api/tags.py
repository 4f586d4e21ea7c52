"""Entity tags: whether the client has the content already."""

from __future__ import annotations

from starlette.requests import Request

__all__ = ["is_known"]


def is_known(request: Request, tag: str) -> bool:
    """Whether If-None-Match names ``tag`` (with its quotes), strong or weak, or anything that there is."""
    given = {t.strip().removeprefix("W/") for line in request.headers.getlist("if-none-match") for t in line.split(",")}
    return tag in given or "*" in given
