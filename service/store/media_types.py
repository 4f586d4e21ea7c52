"""Media types of an entry's files, by the ends of their names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from types import MappingProxyType

__all__ = ["media_type"]

_BY_SUFFIX: Mapping[str, str] = MappingProxyType(
    {
        ".hlo": "text/plain; charset=utf-8",
        ".html": "text/html; charset=utf-8",
        ".json": "application/json",
    }
)


def media_type(name: str) -> str:
    """``"application/json"`` for ``"report.json"``; bytes of no known type are ``application/octet-stream``."""
    return _BY_SUFFIX.get(PurePath(name).suffix, "application/octet-stream")
