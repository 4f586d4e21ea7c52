"""Output of a job with the rank before each line.

Launchers mark what they forward: Hydra (MPICH, Intel MPI) every chunk of bytes as it comes, Open MPI every line. Here
chunks become whole lines again, so that no line of one rank is cut by another's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

__all__ = ["HYDRA_PATTERN", "OutputByRank"]

#: What Hydra is told to write before a chunk: characters that no text has, around the rank.
HYDRA_PATTERN = "\x1e%r\x1f"
_HYDRA = re.compile(rb"\x1e(\d+)\x1f")
_OPEN_MPI = re.compile(rb"\[\d+,(\d+)\]<std(?:out|err|diag)>: ?")


@dataclass(frozen=True, slots=True)
class OutputByRank:
    """Turns a launcher's marked stream into lines; ``numbered`` ones start with ``[rank]``.

    ``kind`` is the `MpiLibrary`'s. Example: ``b"".join(OutputByRank("mpich").lines([b"\\x1e0\\x1fa", b"b\\n"]))``
    is ``b"[0] ab\\n"``.
    """

    kind: str
    numbered: bool = True

    def lines(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Lines as they become complete; what has no end of line when the stream ends comes last, by rank."""
        marks = _OPEN_MPI if self.kind == "openmpi" else _HYDRA
        begun: dict[bytes, bytes] = {}
        for chunk in _by_line(chunks):
            # Even pieces are text, odd ones the rank whose mark stood before it; what comes first is the launcher's.
            first, *rest = marks.split(chunk)
            for rank, text in zip((b"", *rest[::2]), (first, *rest[1::2]), strict=True):
                whole = begun.pop(rank, b"") + text
                if whole.endswith(b"\n"):
                    yield self._line(rank, whole)
                elif whole:
                    begun[rank] = whole
        for rank in sorted(begun, key=lambda r: int(r or b"-1")):
            yield self._line(rank, begun[rank] + b"\n")

    def _line(self, rank: bytes, text: bytes) -> bytes:
        return b"[" + rank + b"] " + text if rank and self.numbered else text


def _by_line(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes, cut behind every end of line: marks are never cut in two."""
    left = b""
    for chunk in chunks:
        *whole, left = (left + chunk).split(b"\n")
        for line in whole:
            yield line + b"\n"
    if left:
        yield left
