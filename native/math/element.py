"""What code for elements has to know about their type."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Element"]


class Element(Protocol):
    """An element type: ``name`` as in HLO (``f8e4m3fn``), width in ``bits``, ``nbytes`` that one takes in memory.

    ``kind`` is ``pred``, ``signed``, ``unsigned``, ``float`` or ``complex``. `shardc.hlo.ir.types.DType` is one;
    this floor knows nothing of it.
    """

    @property
    def name(self) -> str: ...

    @property
    def bits(self) -> int: ...

    @property
    def kind(self) -> str: ...

    @property
    def nbytes(self) -> int: ...
