"""Parts of late kernels move to their operands where memory is fullest, and nowhere else."""

from __future__ import annotations

import pytest

from shardc.compiler.lower.fuse.compute_early import ComputeEarly
from shardc.compiler.lower.fuse.fuse import Fuse
from shardc.compiler.lower.fuse.fuse_products import FuseProducts
from shardc.compiler.lower.schedule.order_for_memory import OrderForMemory, peak_bytes_of
from shardc.hlo.ir.ir import Module
from shardc.hlo.simplify.simplify import Simplify
from tests.compiler.checking import SUM, check, program
from tests.compiler.test_orders import random_program

N = 64
SIDE = f"f32[{N},{N}]"
CONTRACT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def before_and_after(module: Module) -> tuple[Module, Module]:
    """Without and with the pass; the compiled program computes what the evaluator does."""
    check(module, tolerance=1e-4)
    before = OrderForMemory().run(Fuse().run(Simplify().run(module)))
    after = ComputeEarly().run(before)
    return before, after


def layers(count: int) -> Module:
    """Products with ReLU, and backwards through them: each step back asks which activations were positive.

    Weights are small, so that values do not grow: the last tanh would give the sign of what differs by rounding.
    """
    lines = [f"v0 = {SIDE} parameter(0)", f"u = {SIDE} parameter(1)", "zero = f32[] constant(0)"]
    lines += ["tenth = f32[] constant(0.1)", f"tenths = {SIDE} broadcast(tenth), dimensions={{}}"]
    lines += [f"w = {SIDE} multiply(u, tenths)"]
    lines += [f"z = {SIDE} broadcast(zero), dimensions={{}}"]
    for n in range(count):
        lines += [f"d{n} = {SIDE} dot(v{n}, w), {CONTRACT}", f"v{n + 1} = {SIDE} maximum(d{n}, z)"]
    lines += [f"g{count} = {SIDE} sine(v{count})"]
    for n in reversed(range(count)):
        lines += [
            f"p{n} = pred[{N},{N}] compare(d{n}, z), direction=GT",
            f"m{n} = {SIDE} select(p{n}, g{n + 1}, z)",
            f"g{n} = {SIDE} dot(m{n}, w), {CONTRACT}",
        ]
    return program("\n".join([*lines, f"ROOT r = {SIDE} tanh(g0)"]), SUM)


def test_a_mask_is_kept_instead_of_the_activation() -> None:
    before, after = before_and_after(layers(6))
    assert peak_bytes_of(after.entry) < 0.55 * peak_bytes_of(before.entry)
    assert sum(i.shape.is_array and i.shape.dtype.name == "pred" for i in after.entry) >= 4


def test_a_long_sum_is_begun_where_its_terms_are() -> None:
    lines = [f"x = {SIDE} parameter(0)", f"v0 = {SIDE} sine(x)"]
    lines += [f"v{n + 1} = {SIDE} dot(v{n}, x), {CONTRACT}" for n in range(6)]
    lines += [f"sum1 = {SIDE} multiply(v0, v1)"]
    lines += [f"sum{n} = {SIDE} add(sum{n - 1}, v{n})" for n in range(2, 7)]
    module = program("\n".join([*lines[:-1], f"ROOT {lines[-1]}"]))
    before, after = before_and_after(module)
    assert peak_bytes_of(before.entry) >= 7 * N * N * 4
    assert peak_bytes_of(after.entry) <= 5 * N * N * 4


def test_products_stay_products() -> None:
    """Both early ones of which nothing but the product is kept, and what is left of a product and its readers."""
    tall = f"f32[{8 * N},{N}]"
    over_rows = "lhs_contracting_dims={0}, rhs_contracting_dims={0}"
    lines = [f"x = {tall} parameter(0)", f"y = {tall} parameter(1)"]
    lines += [f"w{n} = {SIDE} parameter({n + 2})" for n in range(6)]
    for n in range(6):
        lines += [f"a{n} = {tall} sine({f'b{n - 1}' if n else 'x'})", f"b{n} = {tall} multiply(a{n}, y)"]
        lines += [f"g{n} = {SIDE} dot(a{n}, b{n}), {over_rows}"]
    lines += ["zero = f32[] constant(0)", "t = f32[] reduce(b5, zero), dimensions={0,1}, to_apply=sum"]
    lines += [f"tt = {SIDE} broadcast(t), dimensions={{}}"]
    for n in range(6):
        lines += [f"h{n} = {SIDE} multiply(g{n}, tt)", f"r{n} = {SIDE} subtract(w{n}, h{n})"]
    results = ", ".join(f"r{n}" for n in range(6))
    shape = ", ".join([SIDE] * 6)
    module = program("\n".join([*lines, f"ROOT r = ({shape}) tuple({results})"]), SUM)
    check(module, tolerance=1e-4)
    before = OrderForMemory().run(Fuse().run(FuseProducts().run(Simplify().run(module))))
    after = ComputeEarly().run(before)
    assert peak_bytes_of(after.entry) < peak_bytes_of(before.entry)
    for i in after.entry:
        if i.opcode == "fusion" and any(j.opcode == "dot" for j in i.attrs["calls"]):
            assert i.attrs["kind"] == "kOutput"
    assert any(i.opcode == "dot" for i in after.entry)


def test_kernels_are_split_only_where_that_lowers_the_peak() -> None:
    """The same mask, but far from where memory is fullest."""
    lines = [
        f"x = {SIDE} parameter(0)",
        f"a = {SIDE} dot(x, x), {CONTRACT}",
        f"y = {SIDE} sine(a)",
        f"e = {SIDE} dot(y, x), {CONTRACT}",
        f"p = pred[{N},{N}] compare(a, e), direction=GT",
        f"q = {SIDE} select(p, a, e)",
        f"b = f32[8,{N},{N}] broadcast(q), dimensions={{1,2}}",
        "c = f32[8,64,64] sine(b)",
        f"d = f32[8,{N},8,{N}] dot(c, c), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}",
        f"ROOT r = f32[8,{N},8,{N}] sine(d)",
    ]
    before, after = before_and_after(program("\n".join(lines)))
    assert after.entry is before.entry


@pytest.mark.parametrize("seed", range(8))
def test_the_peak_never_rises(seed: int) -> None:
    before, after = before_and_after(random_program(seed))
    assert peak_bytes_of(after.entry) <= peak_bytes_of(before.entry)
