"""Products and what is computed from them in one kernel: which instructions join, and that nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.compiler.lower.fuse.fuse_products import FuseProducts
from shardc.hlo.ir.ir import Module
from tests.compiler.checking import SUM, check, program

DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def shapes(m: int, k: int, n: int, dtype: str = "f32") -> str:
    return (
        f"x = {dtype}[{m},{k}] parameter(0)\ny = {dtype}[{k},{n}] parameter(1)\nd = {dtype}[{m},{n}] dot(x, y), {DOT}\n"
    )


def fused(module: Module, tolerance: float = 2e-5) -> list[tuple[str, list[str]]]:
    """Opcodes of the entry after the pass, with those inside fusions; the program gives what the evaluator says."""
    check(module, tolerance=tolerance)
    after = FuseProducts().run(module)
    check(after, tolerance=tolerance)
    found = []
    for i in after.entry:
        if i.opcode != "parameter":
            calls = i.attrs.get("calls") if i.opcode == "fusion" else None
            inside = [] if calls is None else [m.opcode for m in calls if m.opcode not in ("parameter", "tuple")]
            found.append((i.opcode, inside))
    return found


SIZES = [(3, 4, 5), (1, 30, 1), (70, 300, 130), (300, 90, 40), (64, 64, 64)]


@pytest.mark.parametrize("sizes", SIZES)
def test_bias_and_activation(sizes: tuple[int, int, int]) -> None:
    m, _, n = sizes
    lines = (
        f"b = f32[{n}] parameter(2)\nw = f32[{m},{n}] broadcast(b), dimensions={{1}}\n"
        f"a = f32[{m},{n}] add(d, w)\nROOT t = f32[{m},{n}] tanh(a)"
    )
    assert fused(program(shapes(*sizes) + lines)) == [("fusion", ["broadcast", "dot", "add", "tanh"])]


@pytest.mark.parametrize("sizes", SIZES)
def test_update_in_place(sizes: tuple[int, int, int]) -> None:
    m, _, n = sizes
    lines = (
        f"p = f32[{m},{n}] parameter(2)\nc = f32[] constant(0.1)\nr = f32[{m},{n}] broadcast(c), dimensions={{}}\n"
        f"s = f32[{m},{n}] multiply(r, d)\nROOT u = f32[{m},{n}] subtract(p, s)"
    )
    module = program(shapes(*sizes) + lines, header=", input_output_alias={ {}: (2, {}, may-alias) }")
    (only,) = fused(module)
    assert only[0] == "fusion"


def test_several_results() -> None:
    lines = (
        "t = f32[70,130] tanh(d)\nn = f32[70,130] negate(t)\ne = f32[70,130] exponential(n)\n"
        "ROOT r = (f32[70,130], f32[70,130]) tuple(t, e)"
    )
    found = fused(program(shapes(70, 30, 130) + lines))
    assert [o for o, _ in found] == ["fusion", "get-tuple-element", "get-tuple-element", "tuple"]


def test_what_the_product_reads_too_is_read_once() -> None:
    module = program(
        f"x = f32[4,4] parameter(0)\na = f32[4,4] add(x, x)\nd = f32[4,4] dot(a, a), {DOT}\n"
        "t = f32[4,4] tanh(d)\nROOT r = f32[4,4] add(t, a)"
    )
    assert fused(module) == [("add", []), ("fusion", ["dot", "tanh", "add"])]


def test_what_needs_the_whole_product_waits() -> None:
    lines = (
        "z = f32[] constant(0)\ns = f32[70] reduce(d, z), dimensions={1}, to_apply=sum\n"
        "w = f32[70,130] broadcast(s), dimensions={0}\nROOT q = f32[70,130] divide(d, w)"
    )
    assert [o for o, _ in fused(program(shapes(70, 30, 130) + lines, SUM), 2e-2)].count("fusion") == 0


def test_no_cycle_between_two_products() -> None:
    lines = (
        "e = f32[5,5] dot(y, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        "te = f32[5,5] tanh(e)\ntd = f32[5,5] tanh(d)\na = f32[5,5] multiply(td, te)\n"
        "b = f32[5,5] add(te, td)\nc = f32[5,5] subtract(a, b)\n"
        "f = f32[5,5] dot(c, td), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        "g = f32[5,5] add(f, a)\nROOT r = (f32[5,5], f32[5,5]) tuple(c, g)"
    )
    fused(program(shapes(5, 5, 5) + lines))


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f64", "c64"])
@pytest.mark.parametrize("sizes", [(70, 90, 130), (7, 9, 13)])
def test_types(dtype: str, sizes: tuple[int, int, int]) -> None:
    m, _, n = sizes
    lines = f"n = {dtype}[{m},{n}] negate(d)\nROOT m = {dtype}[{m},{n}] multiply(n, n)"
    assert fused(program(shapes(*sizes, dtype) + lines), 2e-2)[0][0] == "fusion"


def test_a_narrower_result() -> None:
    lines = "ROOT c = bf16[70,130] convert(d)"
    assert fused(program(shapes(70, 90, 130) + lines), 2e-2) == [("fusion", ["dot", "convert"])]


def test_batches_with_a_mask() -> None:
    lines = (
        "x = f32[3,40,20] parameter(0)\ny = f32[3,50,20] parameter(1)\nv = f32[3,50] parameter(2)\n"
        "d = f32[3,40,50] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, "
        "rhs_contracting_dims={2}\n"
        "i = s32[40,50] iota(), iota_dimension=0\nj = s32[40,50] iota(), iota_dimension=1\n"
        "k = pred[40,50] compare(i, j), direction=GE\np = pred[3,40,50] broadcast(k), dimensions={1,2}\n"
        "w = f32[3,40,50] broadcast(v), dimensions={0,2}\nc = f32[] constant(-9)\n"
        "o = f32[3,40,50] broadcast(c), dimensions={}\na = f32[3,40,50] multiply(d, w)\n"
        "ROOT s = f32[3,40,50] select(p, a, o)"
    )
    ((opcode, inside),) = [f for f in fused(program(lines)) if "dot" in f[1]]
    assert opcode == "fusion" and inside[-1] == "select"


def test_special_values_reach_what_they_should() -> None:
    lines = "ROOT t = f32[70,130] maximum(d, d)"
    module = FuseProducts().run(program(shapes(70, 300, 130) + lines))
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(s).astype(np.float32) for s in ((70, 300), (300, 130)))
    x[3, 299], y[0, 7], y[256, 64] = np.nan, np.inf, -np.inf
    check(module, [x, y])


@pytest.mark.parametrize("sizes", [(20, 30, 8, 64), (300, 200, 3, 32), (6, 9, 5, 7), (130, 70, 10, 24)])
def test_a_bias_along_one_of_several_columns(sizes: tuple[int, int, int, int]) -> None:
    m, k, h, n = sizes
    lines = (
        f"x = f32[{m},{k}] parameter(0)\ny = f32[{k},{h},{n}] parameter(1)\n"
        f"b = f32[{n}] parameter(2)\nc = f32[{h}] parameter(3)\nd = f32[{m},{h},{n}] dot(x, y), {DOT}\n"
        f"v = f32[{m},{h},{n}] broadcast(b), dimensions={{2}}\nw = f32[{m},{h},{n}] broadcast(c), dimensions={{1}}\n"
        f"a = f32[{m},{h},{n}] add(d, v)\nROOT s = f32[{m},{h},{n}] multiply(a, w)"
    )
    assert [o for o, _ in fused(program(lines))] == ["fusion"]


def test_what_one_product_makes_is_not_made_again_by_another() -> None:
    lines = (
        "z = f32[] constant(3)\nw = f32[5,5] broadcast(z), dimensions={}\n"
        "e = f32[5,5] dot(y, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        "o = f32[5,5] multiply(d, w)\na = f32[5,5] add(e, o)\nROOT r = (f32[5,5], f32[5,5]) tuple(a, o)"
    )
    found = fused(program(shapes(5, 5, 5) + lines))
    assert sum(inside.count("dot") for _, inside in found) + [o for o, _ in found].count("dot") == 2
