"""NumPy meaning: random numbers."""

from __future__ import annotations

from collections.abc import Mapping

from shardc.hlo.evaluate.machine import Row, unsupported

__all__ = ["ROWS"]

ROWS: Mapping[str, Row] = {
    "rng": unsupported("its numbers are unspecified"),
    "rng-bit-generator": unsupported("to be written"),
    "rng-get-and-update-state": unsupported("its state is outside the program"),
}
