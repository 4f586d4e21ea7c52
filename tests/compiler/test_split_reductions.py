"""Long reductions come in two levels; short ones, and those that many threads can share anyway, stay."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.compiler.lower.simplify.split_reductions import SplitReductions
from shardc.hlo.evaluate import evaluate_computation
from shardc.hlo.ir.ir import Module
from tests.compiler.checking import check, program


def sums(shape: str, out: str, dims: str, kind: str = "f32", op: str = "add", init: int = 3) -> Module:
    return program(
        f"x = {kind}[{shape}] parameter(0)\nz = {kind}[] constant({init})\n"
        f"ROOT r = {kind}[{out}] reduce(x, z), dimensions={{{dims}}}, to_apply=f",
        f"f {{\na = {kind}[] parameter(0)\nb = {kind}[] parameter(1)\nROOT c = {kind}[] {op}(a, b)\n}}",
    )


def split(module: Module) -> Module:
    after = SplitReductions().run(module)
    check(after)
    return after


def reductions(module: Module) -> list[tuple[int, ...]]:
    return [i.shape.dims for i in split(module).entry if i.opcode == "reduce"]


@pytest.mark.parametrize(
    ("shape", "out", "dims", "wanted"),
    [
        ("1024,1024", "", "0,1", [(64,), ()]),
        ("1024,1024", "1024", "0", [(64, 1024), (1024,)]),
        ("1024,1024", "1024", "1", [(1024,)]),
        ("8,128,512", "512", "0,1", [(8, 8, 512), (512,)]),
        ("64,8,8,128", "128", "0,1,2", [(64, 128), (128,)]),
        ("512,512", "512", "0", [(32, 512), (512,)]),
        ("1009,1000", "", "0,1", [(1009,), ()]),
        ("2,600000", "2", "1", [(2, 32), (2,)]),
        ("300,300", "", "0,1", [()]),
        ("16,20000", "20000", "0", [(20000,)]),
        ("1000003", "", "0", [()]),
        ("0,1024", "1024", "0", [(1024,)]),
    ],
)
def test_how_reductions_are_split(shape: str, out: str, dims: str, wanted: list[tuple[int, ...]]) -> None:
    assert reductions(sums(shape, out, dims)) == wanted


@pytest.mark.parametrize("op", ["add", "maximum", "multiply", "minimum"])
@pytest.mark.parametrize("kind", ["f32", "bf16", "s32", "f64"])
def test_values_stay(op: str, kind: str) -> None:
    for shape, out, dims in (("640,1024", "", "0,1"), ("4,320,600", "600", "0,1")):
        module = sums(shape, out, dims, kind, op)
        after = split(module)
        dtype = module.entry.parameters[0].shape.dtype
        sizes = tuple(map(int, shape.split(",")))
        x = np.random.default_rng(0).integers(-1, 3, sizes).astype(dtype.numpy)
        if op == "multiply":
            x = np.where(x == 0, 1, x).astype(dtype.numpy)
            x[1:] = 1
        before, now = (np.asarray(evaluate_computation(m.entry, [x])).astype(np.float64) for m in (module, after))
        if kind == "bf16" and op == "add":  # the sum of the parts is not rounded in between
            exact = x.astype(np.float64).sum(tuple(map(int, dims.split(",")))) + 3
            assert np.abs(now - exact).max() <= np.abs(exact).max() * 2**-8
        else:
            np.testing.assert_array_equal(now, before)


def test_reducers_without_a_known_neutral_value_stay() -> None:
    module = program(
        "x = f32[1024,1024] parameter(0)\nz = f32[] constant(0)\n"
        "ROOT r = f32[] reduce(x, z), dimensions={0,1}, to_apply=f",
        "f {\na = f32[] parameter(0)\nb = f32[] parameter(1)\nc = f32[] add(a, b)\nd = f32[] negate(c)\n"
        "ROOT e = f32[] negate(d)\n}",
    )
    assert reductions(module) == [()]
