"""Products with long sums are cut into parts, with the same numbers as before."""

from __future__ import annotations

import pytest

from shardc.compiler.lower.simplify.split_products import SplitProducts
from tests.compiler.checking import check, program


def split(lines: str, tolerance: float = 2e-5) -> list[str]:
    module = program(lines)
    after = SplitProducts().run(module)
    check(after, tolerance=tolerance)
    return [str(i.shape.dims) for i in after.entry if i.opcode == "dot"]


def lines(left: str, right: str, result: str, attrs: str) -> str:
    return f"x = {left} parameter(0)\ny = {right} parameter(1)\nROOT d = {result} dot(x, y), {attrs}"


@pytest.mark.parametrize("dtype", ["f32", "bf16", "c64"])
def test_a_long_sum(dtype: str) -> None:
    found = split(
        lines(f"{dtype}[20000,40]", f"{dtype}[20000,30]", f"{dtype}[40,30]",
              "lhs_contracting_dims={0}, rhs_contracting_dims={0}"), 2e-2 if dtype == "bf16" else 2e-5,
    )  # fmt: skip
    assert found == ["(5, 40, 30)"]


def test_the_first_of_several_contracted_dimensions_is_cut() -> None:
    attrs = "lhs_batch_dims={1}, rhs_batch_dims={2}, lhs_contracting_dims={3,0}, rhs_contracting_dims={0,3}"
    found = split(lines("f32[10,2,50,600]", "f32[600,30,2,10]", "f32[2,50,30]", attrs))
    assert found == ["(4, 2, 50, 30)"]


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [("f32[20011,40]", "f32[20011,30]", "f32[40,30]"), ("f32[2000,40]", "f32[2000,30]", "f32[40,30]")],
)
def test_prime_and_short_sums_stay(left: str, right: str, result: str) -> None:
    found = split(lines(left, right, result, "lhs_contracting_dims={0}, rhs_contracting_dims={0}"))
    assert found == ["(40, 30)"]


def test_products_of_many_tiles_stay() -> None:
    text = lines(
        "f32[2048,512]", "f32[2048,1024]", "f32[512,1024]", "lhs_contracting_dims={0}, rhs_contracting_dims={0}"
    )
    assert SplitProducts().run(module := program(text)) is module
