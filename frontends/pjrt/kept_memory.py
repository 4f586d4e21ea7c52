"""Memory that the client is given the address of: characters and arrays that Python keeps."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any

from shardc.frontends.pjrt.native.records import TextRecord

__all__ = ["KeptMemory", "take_text"]


class KeptMemory:
    """What is made here stays where it is as long as this value lives.

    Nobody writes into answers: what is asked for again is the same memory, however often.
    """

    def __init__(self) -> None:
        self._kept: list[Any] = []
        self._answers: dict[tuple[type, bytes], Any] = {}

    def keep(self, value: Any) -> int:
        """The address of a ctypes value, which may change."""
        self._kept.append(value)
        return ctypes.addressof(value)

    def answer(self, value: Any) -> int:
        """The address of a ctypes value, or of an equal one that was an answer before."""
        return ctypes.addressof(self._answers.setdefault((type(value), bytes(value)), value))

    def text_of(self, content: bytes) -> int:
        """The address of a copy, with a zero behind it."""
        return self.answer(ctypes.create_string_buffer(content))

    def text(self, content: str) -> TextRecord:
        encoded = content.encode()
        return TextRecord(data=self.text_of(encoded), nbytes=len(encoded))

    def numbers(self, numbers: Iterable[int]) -> int:
        """The address of an array of addresses, sizes or other numbers of 64 bits."""
        return self._array(ctypes.c_int64, list(numbers))

    def short_numbers(self, numbers: Iterable[int]) -> int:
        """The address of an array of numbers of 32 bits."""
        return self._array(ctypes.c_int32, list(numbers))

    def texts(self, contents: Sequence[str]) -> tuple[int, int]:
        """The addresses of an array of characters' addresses, and of one of their sizes."""
        records = [self.text(c) for c in contents]
        return self.numbers(r.data for r in records), self.numbers(r.nbytes for r in records)

    def _array(self, kind: Any, numbers: Sequence[int]) -> int:
        return self.answer((kind * max(1, len(numbers)))(*numbers))


def take_text(at: int, nbytes: int) -> str:
    """Characters that the client passed."""
    return ctypes.string_at(at, nbytes).decode()
