"""OpenXLA's interpreter cases, written by hand: the meaning of ops at their corners, collectives on several devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interpreter_runs import grids, parsable, run_natively

from shardc.hlo.errors import ParseError
from shardc.hlo.evaluate import evaluate, evaluate_computation
from shardc.hlo.ir.build import uncalled_computations
from shardc.hlo.ir.ir import Computation, Module
from shardc.hlo.stablehlo.reader import read_stablehlo
from shardc.hlo.verify import verify

#: What only newer releases of jaxlib can read.
NEWER = ("has_dynamic_root", "stablehlo.collective_reduce")


def read(path: Path) -> Module:
    pytest.importorskip("jaxlib")
    text = parsable(path.read_text(encoding="utf-8"))
    try:
        module = read_stablehlo(text, path.name, every_function=True)
    except ParseError:
        found = [word for word in NEWER if word in text]
        if found:
            pytest.skip(f"unsupported: this jaxlib does not know {found[0]}")
        raise
    verify(module)
    return module


def test_evaluator(interpret_case: Path) -> None:
    module = read(interpret_case)
    evaluate(module, zeros(module.entry))
    for function in uncalled_computations(module):
        evaluate_computation(function, zeros(function))


def zeros(function: Computation) -> list[np.ndarray[Any, Any]]:
    return [np.zeros(p.shape.dims, p.shape.dtype.numpy) for p in function.parameters]


def test_devices(grid_case: Path) -> None:
    """Programs on several devices, compiled."""
    module = read(grid_case)
    assert len(grids(module)) == 1
    run_natively(module)
