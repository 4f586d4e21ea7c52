"""OpenXLA's StableHLO programs, which carry their expected values, through reader, verifier and evaluator."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from shardc.hlo.evaluate import evaluate
from shardc.hlo.verify import verify

pytest.importorskip("jaxlib")

#: Its expected products differ from the exact ones by more than the absolute tolerance it asks for.
EXCEPT = {"cumprod_complex64_8_9.mlir"}


def satisfied(path: Path) -> str:
    """Empty when every check of a program holds, otherwise the program and the failure."""
    from jaxlib.mlir import ir

    from shardc.hlo.stablehlo.mlir.bindings import Bindings
    from shardc.hlo.stablehlo.reader import module_from_mlir

    with Bindings().context():
        module = module_from_mlir(ir.Module.parse(path.read_text()))
    try:
        verify(module)
        evaluate(module, [])
    except Exception as e:
        return f"{path.name}: {type(e).__name__}: {e}"
    return ""


def programs(conformance: Path) -> list[Path]:
    return [p for p in sorted((conformance / "stablehlo").glob("*.mlir")) if p.name not in EXCEPT]


def test_a_seeded_slice(conformance: Path) -> None:
    found = programs(conformance)
    chosen = random.Random(0).sample(found, min(len(found), 150))
    assert [f for f in map(satisfied, chosen) if f] == []


@pytest.mark.full
def test_all(conformance: Path) -> None:
    assert [f for f in map(satisfied, programs(conformance)) if f] == []
