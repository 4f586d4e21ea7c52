"""Shardy's own tests of propagation: our shardings, written back through MLIR, satisfy their FileCheck comments."""

from __future__ import annotations

from pathlib import Path

from shardy_passes import after_passes

from tests.file_check import file_check


def test_propagation(shardy_case: Path) -> None:
    complaint = file_check(shardy_case, after_passes(shardy_case.read_text(encoding="utf-8")))
    assert not complaint, complaint
