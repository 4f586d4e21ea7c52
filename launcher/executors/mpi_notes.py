"""Short notes between rank 0 and the others, on a communicator of their own: a number and some bytes.

Nobody waits for a note. Those to rank 0 are heard by a thread of its, those to the others when they look.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from typing import Any

__all__ = ["Notes"]

_NUMBER = struct.Struct(">q")
_NOTE, _LAST = 1, 2
#: Seconds between two looks.
_LOOK = 0.02


class Notes:
    """This rank's side; ``comm`` is a duplicate that only it uses."""

    def __init__(self, mpi: Any, comm: Any) -> None:
        self._mpi, self._comm = mpi, comm
        self._lock, self._sent = threading.Lock(), list[Any]()
        self._others = range(1, comm.Get_size()) if comm.Get_rank() == 0 else range(1)
        self._left = set(self._others)

    def tell(self, number: int = 0, data: bytes = b"", *, last: bool = False) -> None:
        """A note to rank 0, or from rank 0 to all the others."""
        note = _NUMBER.pack(number) + data
        with self._lock:
            self._sent = [r for r in self._sent if not r[0].Test()]
            for rank in self._others:
                self._sent.append((self._comm.Isend([note, self._mpi.BYTE], rank, _LAST if last else _NOTE), note))

    def hear(self) -> list[tuple[int, bytes]]:
        """What has come since the last look: numbers and data. One thread at a time looks."""
        found = []
        status = self._mpi.Status()
        while self._comm.Iprobe(tag=self._mpi.ANY_TAG, status=status):
            note = bytearray(status.Get_count(self._mpi.BYTE))
            rank, tag = status.Get_source(), status.Get_tag()
            self._comm.Recv([note, self._mpi.BYTE], rank, tag)
            if tag == _LAST:
                self._left.discard(rank)
            else:
                found.append((_NUMBER.unpack_from(note)[0], bytes(note[_NUMBER.size :])))
        return found

    def listen(self, heard: Callable[[int, bytes], None]) -> None:
        """Hear notes until the last one of everybody has come."""
        while self._left:
            for number, data in self.hear():
                heard(number, data)
            time.sleep(_LOOK)

    def close(self) -> None:
        """All ranks together, after everybody's last note was sent and heard."""
        for request, _ in self._sent:
            request.Wait()
        self._comm.Free()
