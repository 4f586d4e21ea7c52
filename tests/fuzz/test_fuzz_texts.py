"""Mutated program texts become programs or errors of ours: no other exception, no crash, no hang.

To look for more: ``python tests/fuzz/fuzz_texts.py hlo|stablehlo FIRST LAST``.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz_child import run_fuzzer
from text_mutator import shrink


def run_seeds(kind: str, first: int, last: int) -> None:
    run_fuzzer("fuzz_texts.py", kind, first, last, says=f"{last - first} mutants")


@pytest.mark.parametrize(("kind", "count"), [("hlo", 2_000), ("stablehlo", 150)])
def test_mutants(kind: str, count: int, conformance: Path) -> None:
    run_seeds(kind, 0, count)


@pytest.mark.full
@pytest.mark.parametrize("first", range(0, 200_000, 10_000))
def test_many_mutants_of_hlo(first: int, conformance: Path) -> None:
    run_seeds("hlo", 1_000_000 + first, 1_010_000 + first)


@pytest.mark.full
@pytest.mark.parametrize("first", range(0, 10_000, 1_000))
def test_many_mutants_of_stablehlo(first: int, conformance: Path) -> None:
    run_seeds("stablehlo", 1_000_000 + first, 1_001_000 + first)


def test_a_failing_text_is_made_small() -> None:
    text = "\n".join(f"line {n} has words" for n in range(40))
    assert shrink(text, lambda t: "17" in t) == "17"
