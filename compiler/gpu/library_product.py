"""Products that cuBLASLt can do: what a dot, or a fusion of one with what follows it, is in the library's terms."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.hlo.ir import Instruction

__all__ = ["LibraryProduct", "library_product"]


@dataclass(frozen=True, slots=True)
class LibraryProduct:
    """``d = epilogue(a @ b + bias)`` as `ProductStep` has it; ``a``, ``b`` and ``bias`` number operand leaves."""

    m: int
    n: int
    k: int
    batch: int
    transpose_a: bool
    transpose_b: bool
    dtype: str
    result: str
    precision: str
    epilogue: str
    a: int
    b: int
    bias: int | None = None


def library_product(instruction: Instruction) -> LibraryProduct | None:
    """The library's product that ``instruction`` is; None where it is none."""
    return None
