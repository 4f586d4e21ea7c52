"""What is told of the range of integers holds for all that is computed."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.hlo.evaluate import evaluate
from shardc.hlo.simplify.ranges import integer_range
from shardc.hlo.text.reader import read_hlo

LESS = """less {
a = s32[] parameter(0)
b = s32[] parameter(1)
c = u8[] parameter(2)
d = u8[] parameter(3)
ROOT l = pred[] compare(a, b), direction=LT
}
"""
WHOLE = (-(1 << 31), (1 << 31) - 1)
#: What is made of places 0 to 199 (u8), some s32 numbers x and a predicate p, and the range that is told.
PROGRAMS = {
    "r = u8[200] reverse(places), dimensions={0}": (0, 199),
    "r = s32[200] convert(places)": (0, 199),
    "r = s8[200] convert(places)": (-128, 127),
    "r = s32[200] negate(x)": WHOLE,
    "r = u8[200] add(places, places)": (0, 255),
    "w = s32[200] convert(places)\nr = s32[200] add(w, w)": (0, 398),
    "w = s32[200] convert(places)\nr = s32[200] maximum(w, x)": (0, (1 << 31) - 1),
    "w = s32[200] convert(places)\nr = s32[200] minimum(w, x)": (-(1 << 31), 199),
    "s = (s32[200], u8[200]) sort(x, places), dimensions={0}, to_apply=less\n"
    "r = u8[200] get-tuple-element(s), index=1": (0, 199),
    "s = (s32[200], u8[200]) sort(x, places), dimensions={0}, to_apply=less\n"
    "r = s32[200] get-tuple-element(s), index=0": WHOLE,
    "w = s32[200] convert(places)\nk = s32[] constant(-7)\nm = s32[200] broadcast(k), dimensions={}\n"
    "r = s32[200] select(p, w, m)": (-7, 199),
}


@pytest.mark.parametrize("lines", PROGRAMS)
def test_what_is_told_is_so(lines: str) -> None:
    text = f"{LESS}ENTRY main {{\nx = s32[200] parameter(0)\np = pred[200] parameter(1)\n"
    text += f"places = u8[200] iota(), iota_dimension=0\n{lines}\n}}"
    module = read_hlo(text.replace("\nr =", "\nROOT r ="))
    told = integer_range(module.entry.root)
    assert told == PROGRAMS[lines]
    rng = np.random.default_rng(0)
    numbers = rng.integers(*WHOLE, 200, endpoint=True).astype(np.int32)
    (result,) = evaluate(module, [numbers, rng.random(200) < 0.5])
    assert told[0] <= int(result.min())
    assert int(result.max()) <= told[1]
