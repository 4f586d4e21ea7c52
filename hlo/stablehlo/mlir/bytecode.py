"""What MLIR's bytecode tells without MLIR: how its types are written down.

A file is a header and sections. One section has the bytes of attributes and types one after another, and another the
size of each, in groups by dialect, attributes first. https://mlir.llvm.org/docs/BytecodeFormat has the details.
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["types_in_bytecode"]

_MAGIC = b"ML\xefR"
_TYPES, _SIZES = 2, 3
_ALIGNED = 0x80


def types_in_bytecode(code: bytes) -> Iterator[bytes]:
    """The bytes of each type in ``code``; a dialect's own writing begins with the kind of type. Nothing for what is no
    bytecode."""
    if not code.startswith(_MAGIC):
        return
    sections = dict(_sections(code))
    at, sizes = sections[_TYPES], _BytecodeNumbers(code, sections[_SIZES])
    attributes, types = sizes.next(), sizes.next()
    seen = 0
    while seen < attributes + types:
        sizes.next()  # the dialect
        for _ in range(sizes.next()):
            size = sizes.next() >> 1  # the last bit says whether it is in the dialect's own writing
            if seen >= attributes:
                yield code[at : at + size]
            at, seen = at + size, seen + 1


def _sections(code: bytes) -> Iterator[tuple[int, int]]:
    """Number and first byte of each section."""
    header = _BytecodeNumbers(code, len(_MAGIC))
    header.next()  # the version
    at = code.index(0, header.at) + 1  # who wrote it
    while at < len(code):
        numbers = _BytecodeNumbers(code, at + 1)
        size = numbers.next()
        start = numbers.at
        if code[at] & _ALIGNED:
            alignment = numbers.next()
            start = -(-numbers.at // alignment) * alignment
        yield code[at] & ~_ALIGNED, start
        at = start + size


class _BytecodeNumbers:
    """Reads numbers of one to nine bytes: zeros at the end of the first byte say how many follow it."""

    def __init__(self, code: bytes, at: int) -> None:
        self.code, self.at = code, at

    def next(self) -> int:
        first = self.code[self.at]
        more = (first & -first).bit_length() - 1 if first else 8
        start, self.at = self.at, self.at + more + 1
        number = int.from_bytes(self.code[start : self.at], "little")
        return number >> min(more + 1, 8)
