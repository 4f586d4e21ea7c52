"""A process's standard streams, read and written together so that none of them blocks the others."""

from __future__ import annotations

import os
import selectors
import subprocess
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import IO

__all__ = ["Pipes"]

#: Bytes that are read at once, and of standard error kept.
_PIECE, _WORDS = 1 << 18, 8192


class Pipes:
    """The pipes of ``process``, which was started with three; one thread at a time uses them."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._input, self._output, self._errors = process.stdin, process.stdout, process.stderr
        self._left: deque[memoryview] = deque()
        self._said = b""
        self._selector = selectors.DefaultSelector()
        for pipe in (self._input, self._output, self._errors):
            os.set_blocking(pipe.fileno(), False)
        for pipe in (self._output, self._errors):
            self._selector.register(pipe, selectors.EVENT_READ)

    @property
    def said(self) -> str:
        """The end of what the process wrote on standard error."""
        return self._said.decode("utf-8", "replace")

    def send(self, message: Iterable[bytes]) -> None:
        """Write ``message``, as far as it goes now and then in every `turn`."""
        self._left.extend(memoryview(part) for part in message if part)
        self._selector.register(self._input, selectors.EVENT_WRITE)

    def turn(self, seconds: float) -> bytes | None:
        """Whatever can be done, for which it waits so long at most: a piece of the process's output, empty at its
        end, None when there is none now."""
        found = None
        for key, _ in self._selector.select(seconds):
            if key.fileobj is self._input:
                self._write()
            elif key.fileobj is self._errors:
                self._listen()
            else:
                found = _read(self._output)
        return found

    def close(self) -> None:
        """Read what the process, which has ended, wrote on standard error, and close everything."""
        while self._listen():
            pass
        self._selector.close()
        for pipe in (self._input, self._output, self._errors):
            with suppress(OSError):  # what was not sent yet
                pipe.close()

    def _write(self) -> None:
        try:
            while self._left:
                sent = os.write(self._input.fileno(), self._left[0])
                self._left[0] = self._left[0][sent:]
                if not self._left[0]:
                    self._left.popleft()
        except BlockingIOError:
            return
        except OSError:  # nobody reads; the end of the output tells
            self._left.clear()
        self._selector.unregister(self._input)

    def _listen(self) -> bool:
        """Whether standard error had new output."""
        piece = _read(self._errors)
        self._said = (self._said + (piece or b""))[-_WORDS:]
        if piece == b"" and self._errors in self._selector.get_map():
            self._selector.unregister(self._errors)
        return bool(piece)


def _read(pipe: IO[bytes]) -> bytes | None:
    """A piece, empty at the end, None when nothing has come."""
    try:
        return os.read(pipe.fileno(), _PIECE)
    except BlockingIOError:
        return None
