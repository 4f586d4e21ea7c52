"""What the launcher of a job prints: passed on, with the rank before each line where wanted.

Launchers mark what they forward: Hydra (MPICH, Intel MPI) every chunk of bytes as it comes, Open MPI every line. Here
chunks become whole lines again, so that no line of one rank is cut by another's.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO

__all__ = ["HYDRA_PATTERN", "LauncherOutput", "OutputByRank"]

#: What Hydra is told to write before a chunk: characters that no text has, around the rank.
HYDRA_PATTERN = "\x1e%r\x1f"
_HYDRA = re.compile(rb"\x1e(\d+)\x1f")
_OPEN_MPI = re.compile(rb"\[\d+,(\d+)\]<std(?:out|err|diag)>: ?")
#: How MPICH and Intel MPI, and Open MPI, say which rank called ``MPI_Abort``; and the most bytes that this takes.
_ABORTED = re.compile(
    rb"Abort\(-?\d+\) on node \d+ \(rank \d+ in comm \d+\): application called MPI_Abort"
    rb"|MPI_ABORT was invoked on rank \d+"
)
_ABORTED_BYTES = 160
#: Descriptors, as a launcher inherits them: a notebook's `sys.stderr` has none.
_STDOUT, _STDERR = 1, 2


class LauncherOutput:
    """Passes on what a launcher prints; ``by_rank`` makes lines of it that name their ranks.

    ``aborted`` is whether MPI has named a rank that called ``MPI_Abort``.
    """

    def __init__(self, kind: str, *, by_rank: bool) -> None:
        self.aborted = False
        self._kind = kind
        self._by_rank = by_rank
        self._threads: list[threading.Thread] = []

    def start(self, line: Sequence[str], environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start a launcher, and threads that write what it prints: stdout's lines with their ranks, stderr's without
        (our own messages have them). Standard output goes past us where nothing is written before its lines."""
        stdout = subprocess.PIPE if self._by_rank else None
        process = subprocess.Popen(line, env=dict(environ), stdout=stdout, stderr=subprocess.PIPE)
        for source, sink in ((process.stdout, _STDOUT), (process.stderr, _STDERR)):
            if source is not None:
                self._threads.append(threading.Thread(target=self._pass_on, args=(source, sink), daemon=True))
                self._threads[-1].start()
        return process

    def join(self, seconds: float) -> None:
        """Wait until everything is written; a process that outlives the launcher may hold its output open."""
        for thread in self._threads:
            thread.join(seconds)

    def _pass_on(self, source: IO[bytes], sink: int) -> None:
        with source:
            parts: Iterator[bytes] = iter(partial(os.read, source.fileno(), 1 << 16), b"")
            if self._by_rank:
                parts = OutputByRank(self._kind, numbered=sink == _STDOUT).lines(parts)
            for part in parts if sink == _STDOUT else self._watch(parts):
                left = memoryview(part)
                while left:
                    left = left[os.write(sink, left) :]

    def _watch(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        before = b""
        for part in parts:
            self.aborted = self.aborted or _ABORTED.search(before + part) is not None
            before = (before + part)[-_ABORTED_BYTES:]
            yield part


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
