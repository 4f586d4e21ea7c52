"""Which reductions there are, and how a group's members are combined: by one fixed tree over positions.

Neighbours are combined level by level, ``((0 1) (2 3)) ((4 5) 6)``; an odd last member moves up unchanged. The tree
depends on the number of members only, and every step is the same function of two elements wherever they lie in memory,
so all transports, shares and members get identical bits (`shardc.native.collectives.reducing`).

``maximum`` and ``minimum`` are the first of equal members (zeros may differ in sign) and the first NaN. Floats narrower
than 32 bits are combined in float32 and rounded once at the end; integers of less than a byte wrap around once at the
end; a complex product rounds each product and sum.
"""

from __future__ import annotations

from shardc.hlo.ir.types import DType

__all__ = ["keeps_partial_sums", "supports_reduction"]


def supports_reduction(reduction: str, dtype: DType) -> bool:
    """Whether ``reduction`` is defined on elements of ``dtype``. Complex numbers have no order, floats no bits."""
    match reduction:
        case "add" | "multiply":
            return True
        case "maximum" | "minimum":
            return not dtype.is_complex
        case "and" | "or":
            return dtype.kind in ("pred", "signed", "unsigned")
        case _:
            return False


def keeps_partial_sums(dtype: DType) -> bool:
    """Whether the result of a subtree can be kept as an element of ``dtype``, with the same total in the end."""
    return dtype.bits >= 8 and dtype.accumulator is dtype
