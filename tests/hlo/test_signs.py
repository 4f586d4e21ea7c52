"""What instructions tell of signs holds for all that they compute."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.hlo.evaluate import evaluate
from shardc.hlo.simplify.signs import is_positive
from shardc.hlo.text.reader import read_hlo

#: What is made of x and y, and whether it is seen that none of it is negative.
PROGRAMS = {
    "r = f32[8] abs(x)": True,
    "r = f32[8] exponential(x)": True,
    "r = f32[8] multiply(x, x)": True,
    "r = f32[8] multiply(x, y)": False,
    "a = f32[8] abs(x)\nr = f32[8] add(a, y)": False,
    "a = f32[8] abs(x)\ns = f32[8] multiply(y, y)\nr = f32[8] add(a, s)": True,
    "a = f32[8] abs(x)\nr = f32[8] negate(a)": False,
    "c = f32[] constant(-0)\nr = f32[8] broadcast(c), dimensions={}": False,
    "c = f32[] constant(0)\nz = f32[8] broadcast(c), dimensions={}\na = f32[8] abs(y)\nr = f32[8] maximum(z, a)": True,
    "c = f32[] constant(1)\nz = f32[8] broadcast(c), dimensions={}\nr = f32[8] maximum(z, x)": False,
}


@pytest.mark.parametrize("lines", PROGRAMS)
def test_what_is_seen_is_so(lines: str) -> None:
    text = f"ENTRY main {{\nx = f32[8] parameter(0)\ny = f32[8] parameter(1)\n{lines}\n}}"
    module = read_hlo(text.replace("\nr =", "\nROOT r ="))
    seen = is_positive(module.entry.root)
    assert seen == PROGRAMS[lines]
    x = np.array([-np.inf, -3.0, -0.0, 0.0, 2.0, np.inf, np.nan, -1e-45], np.float32)
    (result,) = evaluate(module, [x, x[::-1].copy()])
    if seen:
        assert not (np.signbit(result) & ~np.isnan(result)).any()
