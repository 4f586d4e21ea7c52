"""Numbers with units, as people read them: bytes, seconds, operations."""

from __future__ import annotations

__all__ = ["bytes_text", "count_text", "flops_text", "seconds_text"]


def bytes_text(n: float) -> str:
    """``1536`` as ``1.5 KiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.1f} TiB"


def seconds_text(s: float) -> str:
    """``0.0015`` as ``1.5 ms``."""
    for limit, factor, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
        if s < limit:
            return f"{s * factor:.3g} {unit}"
    return f"{s:.3g} s" if s < 1000 else f"{s:.0f} s"


def flops_text(n: float) -> str:
    """``2e12`` as ``2 Tflop``."""
    for unit in ("", "k", "M", "G", "T", "P"):
        if n < 1000:
            return f"{n:.3g} {unit}flop"
        n /= 1000
    return f"{n:.3g} Eflop" if n < 1000 else f"{n:.0f} Eflop"


def count_text(n: float, what: str, several: str = "") -> str:
    """``1200`` and ``device`` as ``1,200 devices``; ``several`` is a plural that is not made with an s."""
    return f"{n:,} {what if n == 1 else several or what + 's'}"
