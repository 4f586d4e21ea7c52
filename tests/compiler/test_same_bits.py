"""An expression has the same bits whatever else its kernel computes, and however kernels are cut."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.checking import compiled_results, program

LINES = """
x = f32[37,61] parameter(0)
y = f32[37,61] parameter(1)
c = f32[] constant(1.7)
d = f32[] constant(0.3)
cs = f32[37,61] broadcast(c), dimensions={}
ds = f32[37,61] broadcast(d), dimensions={}
scaled = f32[37,61] multiply(x, cs)
line = f32[37,61] add(scaled, ds)
product = f32[37,61] multiply(x, y)
mixed = f32[37,61] subtract(product, line)
"""
#: What else is asked for, beside ``line`` and ``mixed``.
OTHERS = (
    "",
    ", scaled",
    ", product",
    ", scaled, product",
    ", rows",
    ", scaled, rows, turned",
)
MORE = """
zero = f32[] constant(0)
squared = f32[37,61] multiply(mixed, mixed)
rows = f32[37] reduce(squared, zero), dimensions={1}, to_apply=sum
turned = f32[61,37] transpose(mixed), dimensions={1,0}
"""


@pytest.mark.parametrize("others", OTHERS)
def test_products_and_sums_are_rounded_alone(others: str) -> None:
    """x * c + d is rounded twice, whether x * c is stored beside it or not."""
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((37, 61)).astype(np.float32) for _ in range(2))
    count = 2 + others.count(",")
    shapes = {"scaled": "f32[37,61]", "product": "f32[37,61]", "rows": "f32[37]", "turned": "f32[61,37]"}
    kinds = ", ".join(["f32[37,61]"] * 2 + [shapes[n] for n in others.split(", ")[1:]])
    module = program(f"{LINES}{MORE}ROOT t = ({kinds}) tuple(line, mixed{others})")
    line, mixed, *_ = compiled_results(module, [x, y])
    assert len(module.results) == count
    want = x * np.float32(1.7) + np.float32(0.3)
    np.testing.assert_array_equal(line, want)
    np.testing.assert_array_equal(mixed, x * y - want)
