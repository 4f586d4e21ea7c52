"""Products with one row or column are reductions, and give what products give."""

from __future__ import annotations

import pytest

from shardc.compiler.lower.expand.expand_vector_products import ExpandVectorProducts
from tests.compiler.checking import check, program


def opcodes(lines: str, least: int = 1, tolerance: float = 2e-5) -> list[str]:
    module = program(lines)
    after = ExpandVectorProducts(least=least).run(module)
    check(after, tolerance=tolerance)
    check(module, tolerance=tolerance)
    return [i.opcode for i in after.entry]


def product(left: str, right: str, result: str, **dims: str) -> str:
    attrs = ", ".join(f"{side}_{role}_dims={{{dims.get(side[0] + role[0], '')}}}" for side in ("lhs", "rhs")
                      for role in ("batch", "contracting") if side[0] + role[0] in dims)  # fmt: skip
    return f"x = {left} parameter(0)\ny = {right} parameter(1)\nROOT d = {result} dot(x, y), {attrs}"


CASES = [
    ("f32[70,300]", "f32[300]", "f32[70]", {"lc": "1", "rc": "0"}),
    ("f32[1,300]", "f32[300,70]", "f32[1,70]", {"lc": "1", "rc": "0"}),
    ("f32[300,1]", "f32[70,300]", "f32[1,70]", {"lc": "0", "rc": "1"}),
    ("f32[70,300]", "f32[1,300,1]", "f32[70,1,1]", {"lc": "1", "rc": "1"}),
    ("f32[5,70,30]", "f32[30,5]", "f32[5,70]", {"lb": "0", "lc": "2", "rb": "1", "rc": "0"}),
    ("f32[70,5,30]", "f32[30,1,5]", "f32[5,70,1]", {"lb": "1", "lc": "2", "rb": "2", "rc": "0"}),
    ("f32[7,8,90]", "f32[8,7]", "f32[90]", {"lc": "0,1", "rc": "1,0"}),
    ("f32[900]", "f32[900]", "f32[]", {"lc": "0", "rc": "0"}),
    ("s8[70,300]", "s8[300]", "s32[70]", {"lc": "1", "rc": "0"}),
    ("c64[70,30]", "c64[30]", "c64[70]", {"lc": "1", "rc": "0"}),
]


@pytest.mark.parametrize(("left", "right", "result", "dims"), CASES)
def test_orders_and_types(left: str, right: str, result: str, dims: dict[str, str]) -> None:
    found = opcodes(product(left, right, result, **dims))
    assert "reduce" in found and "dot" not in found


def test_halves_are_summed_in_single_precision() -> None:
    found = opcodes(product("bf16[70,300]", "bf16[300]", "bf16[70]", lc="1", rc="0"), tolerance=1e-2)
    assert found.count("convert") == 3


@pytest.mark.parametrize(("left", "right", "result"), [("f32[70,30]", "f32[30,2]", "f32[70,2]")])
def test_matrices_stay(left: str, right: str, result: str) -> None:
    assert "dot" in opcodes(product(left, right, result, lc="1", rc="0"))


def test_small_and_empty_ones_stay() -> None:
    assert "dot" in opcodes(product("f32[7,3]", "f32[3]", "f32[7]", lc="1", rc="0"), least=1 << 12)
    assert "dot" in opcodes(product("f32[7,0]", "f32[0]", "f32[7]", lc="1", rc="0"))
