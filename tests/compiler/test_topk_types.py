"""topk of every real type: compiled code against the evaluator, and against a plain sort."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.hlo.ir.types import DTYPES
from tests.compiler.checking import check, program

REAL = [d for d in DTYPES.values() if d.is_float or d.is_integer]


@pytest.mark.parametrize("name", [d.name for d in REAL])
def test_topk(name: str) -> None:
    d = DTYPES[name]
    module = program(f"x = {name}[3,9] parameter(0)\nROOT r = ({name}[3,4], s32[3,4]) topk(x), k=4, largest=true")
    low = 1 if name == "f8e8m0fnu" else 0 if d.kind == "unsigned" else -2
    x = np.random.default_rng(8).integers(low, low + 4 if d.bits > 2 else 2, (3, 9)).astype(np.float32).astype(d.numpy)
    values, where = check(module, [x])
    plain = x.astype(np.float64)
    order = np.argsort(-plain, axis=1, kind="stable")[:, :4]
    np.testing.assert_array_equal(where, order)
    np.testing.assert_array_equal(values.astype(np.float64), np.take_along_axis(plain, order, 1))
