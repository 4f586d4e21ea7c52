"""Packages: named files and facts as one string of bytes, to a worker and back.

Eight bytes say how long the header is: JSON with the facts, and the files' names and lengths in the order in which
their contents follow. Nothing is compressed, and a reader copies each file once.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from shardc.hlo.codec import plain
from shardc.hlo.errors import InputError, RunError

__all__ = ["ORDER_FILE", "pack", "program_file", "unpack"]

#: What the order is called in a task's package.
ORDER_FILE = "order.json"

_LENGTH = struct.Struct("<Q")


def program_file(digest: str) -> str:
    """What the program with that digest is called in a task's package."""
    return f"program-{digest}"


def pack(files: Mapping[str, bytes], facts: Mapping[str, Any]) -> bytes:
    """``files`` by name and ``facts``, which are plain data."""
    sizes = {name: len(data) for name, data in files.items()}
    header = plain.to_json({"files": sizes, "facts": facts}, Mapping[str, Any]).encode()
    return b"".join((_LENGTH.pack(len(header)), header, *files.values()))


def unpack(data: bytes) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The files and facts that `pack` put together. Raises `RunError` for what is cut off or no such thing."""
    if len(data) < _LENGTH.size:
        raise RunError("a worker's message is cut off")
    (length,) = _LENGTH.unpack_from(data)
    at = _LENGTH.size + length
    try:
        header = plain.from_plain(Mapping[str, Any], plain.read_json(data[_LENGTH.size : at]))
        sizes = plain.from_plain(Mapping[str, int], header["files"])
        facts = header["facts"]
    except (InputError, KeyError):
        raise RunError("a worker's message is damaged: its header cannot be read") from None
    if any(size < 0 for size in sizes.values()) or at + sum(sizes.values()) != len(data):
        raise RunError(f"a worker's message is damaged: {len(data)} bytes, {at + sum(sizes.values())} expected")
    files = {}
    for name, size in sizes.items():
        files[name] = data[at : at + size]
        at += size
    return files, dict(facts)
