"""Products that are read transposed are made that way; those that somebody reads as they are stay."""

from __future__ import annotations

from shardc.compiler.lower.simplify.swap_products import SwapProducts
from shardc.hlo.ir.ir import Module
from tests.compiler.checking import check, program


def opcodes(module: Module) -> list[str]:
    check(module)
    after = SwapProducts().run(module)
    check(after)
    return [i.opcode for i in after.entry if i.opcode != "parameter"]


PLAIN = (
    "x = f32[4,6] parameter(0)\ny = f32[5,6] parameter(1)\n"
    "d = f32[4,5] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n"
)


def test_a_product_that_is_only_read_transposed() -> None:
    assert opcodes(program(PLAIN + "ROOT t = f32[5,4] transpose(d), dimensions={1,0}")) == ["dot"]


def test_batches_and_several_free_dimensions() -> None:
    lines = (
        "x = f32[3,4,2,6] parameter(0)\ny = f32[6,3,5] parameter(1)\n"
        "d = f32[3,4,2,5] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={1}, lhs_contracting_dims={3}, "
        "rhs_contracting_dims={0}\nt = f32[3,5,4,2] transpose(d), dimensions={0,3,1,2}\nROOT n = f32[3,5,4,2] negate(t)"
    )
    assert opcodes(program(lines)) == ["dot", "negate"]


def test_other_orders_stay() -> None:
    lines = (
        "x = f32[3,4,6] parameter(0)\ny = f32[3,5,6] parameter(1)\n"
        "d = f32[3,4,5] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, "
        "rhs_contracting_dims={2}\nROOT t = f32[4,3,5] transpose(d), dimensions={1,0,2}"
    )
    assert opcodes(program(lines)) == ["dot", "transpose"]


def test_a_product_with_another_reader_stays() -> None:
    lines = "t = f32[5,4] transpose(d), dimensions={1,0}\nn = f32[4,5] negate(d)\n"
    assert opcodes(program(PLAIN + lines + "ROOT r = (f32[5,4], f32[4,5]) tuple(t, n)")).count("transpose") == 1
    assert opcodes(program(PLAIN + lines[: lines.index("n =")] + "ROOT r = (f32[5,4], f32[4,5]) tuple(t, d)")) == [
        "dot",
        "transpose",
        "tuple",
    ]


def test_dimension_numbers_that_only_one_side_gives() -> None:
    """A product may name an empty list of batch dimensions on one side and none on the other."""
    module = program(PLAIN.replace("lhs_contracting", "lhs_batch_dims={}, lhs_contracting") + "ROOT t = f32[5,4] "
                     "transpose(d), dimensions={1,0}")  # fmt: skip
    (dot,) = (i for i in module.entry if i.opcode == "dot")
    assert ("lhs_batch_dims" in dot.attrs) != ("rhs_batch_dims" in dot.attrs)
    assert opcodes(module) == ["dot"]
