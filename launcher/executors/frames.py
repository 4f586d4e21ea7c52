"""Messages between a process and its children: a header of plain data (JSON) and bytes, with their lengths before them.

Nothing that arrives is run or unpickled. Who reads has a bound for both parts, so that a child which writes nonsense
costs its parent no memory.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any

__all__ = ["FrameError", "FrameReader", "MessageFrame", "read_frame", "to_bytes"]

_LENGTHS = struct.Struct(">IQ")
#: Bytes that a header may have: names, figures, an error's text.
_HEADER_BYTES = 1 << 20


class FrameError(Exception):
    """What arrives is no message, or one that is too large."""


@dataclass(frozen=True, slots=True)
class MessageFrame:
    """``header`` is an object of JSON, ``body`` what goes with it."""

    header: Mapping[str, Any]
    body: bytes = b""


def to_bytes(header: Mapping[str, Any], body: bytes = b"") -> list[bytes]:
    """The message in pieces that follow each other; ``body`` is not copied."""
    text = json.dumps(header, separators=(",", ":")).encode()
    return [_LENGTHS.pack(len(text), len(body)) + text, body]


def read_frame(file: IO[bytes]) -> MessageFrame | None:
    """The next message of somebody trusted; None at the end of ``file``, also in the middle of a message."""
    start = file.read(_LENGTHS.size)
    if len(start) < _LENGTHS.size:
        return None
    header, body = _LENGTHS.unpack(start)
    text, data = file.read(header), file.read(body)
    return MessageFrame(json.loads(text), data) if len(text) == header and len(data) == body else None


@dataclass
class FrameReader:
    """Makes messages of the pieces in which they arrive; a body has at most ``most`` bytes."""

    most: int
    _left: bytearray = field(default_factory=bytearray)

    def feed(self, piece: bytes) -> list[MessageFrame]:
        """The messages that ``piece`` completes. Raises `FrameError`."""
        self._left += piece
        found = []
        while (frame := self._next()) is not None:
            found.append(frame)
        return found

    def _next(self) -> MessageFrame | None:
        if len(self._left) < _LENGTHS.size:
            return None
        header, body = _LENGTHS.unpack_from(self._left)
        if header > _HEADER_BYTES or body > self.most:
            raise FrameError(f"a message of {header} and {body} bytes")
        begin, end = _LENGTHS.size + header, _LENGTHS.size + header + body
        if len(self._left) < end:
            return None
        try:
            found = json.loads(self._left[_LENGTHS.size : begin])
        except ValueError as e:
            raise FrameError("a header that is not JSON") from e
        if not isinstance(found, dict):
            raise FrameError("a header that is not an object")
        data = bytes(memoryview(self._left)[begin:end])
        del self._left[:end]
        return MessageFrame(found, data)
