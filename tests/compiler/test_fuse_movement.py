"""Fusing what only moves data: rolls and stencils are one kernel, halos are computed where they are sent."""

from __future__ import annotations

import pytest

from shardc.compiler.lower.fuse.fuse import Fuse
from shardc.compiler.lower.lowered import memory_analysis
from shardc.compiler.lower.pipeline import lower
from shardc.hlo.ir.ir import Module
from shardc.hlo.simplify.eliminate_dead import EliminateDead
from shardc.hlo.simplify.simplify import Simplify
from tests.compiler.checking import CHECKED, check, program


def kernels(module: Module) -> list[str]:
    """Opcodes after fusing, parameters and constants left out; the fused program computes the same."""
    check(module)
    after = Fuse().run(EliminateDead().run(Simplify().run(module)))
    return [i.opcode for i in after.entry if i.opcode not in ("parameter", "constant")]


def roll(name: str, source: str, dims: tuple[int, int], d: int, by: int) -> str:
    """``source`` rolled by ``by`` along dimension ``d``."""
    n = dims[d]
    ends = [(n - by, n), (0, n - by)]
    lines = []
    for k, (low, high) in enumerate(ends):
        cut = ", ".join(f"[{low}:{high}]" if e == d else f"[0:{dims[e]}]" for e in range(2))
        shape = ",".join(str(high - low if e == d else dims[e]) for e in range(2))
        lines.append(f"{name}.{k} = f32[{shape}] slice({source}), slice={{{cut}}}")
    shape = ",".join(map(str, dims))
    return "\n".join([*lines, f"{name} = f32[{shape}] concatenate({name}.0, {name}.1), dimensions={{{d}}}"])


@pytest.mark.parametrize("dims", [(8, 40), (37, 5)])
def test_a_stencil_by_rolls_is_one_kernel(dims: tuple[int, int]) -> None:
    shape = ",".join(map(str, dims))
    lines = [f"x = f32[{shape}] parameter(0)"]
    lines += [roll(f"r{k}", "x", dims, k // 2, 1 if k % 2 else dims[k // 2] - 1) for k in range(4)]
    lines += [f"a = f32[{shape}] add(r0, r1)", f"b = f32[{shape}] add(r2, r3)", f"ROOT c = f32[{shape}] add(a, b)"]
    assert kernels(program("\n".join(lines))) == ["fusion"]


def test_a_concatenation_computes_its_operands() -> None:
    once = "x = f32[4,6] parameter(0)\ny = f32[4,3] parameter(1)\nn = f32[4,6] negate(x)\ne = f32[4,3] exponential(y)\n"
    assert kernels(program(once + "ROOT c = f32[4,9] concatenate(n, e), dimensions={1}")) == ["fusion"]


def test_what_two_operands_of_a_concatenation_share_is_computed_once() -> None:
    lines = (
        "x = f32[6] parameter(0)\ne = f32[6] exponential(x)\nn = f32[6] negate(e)\ns = f32[6] sine(e)\n"
        "ROOT c = f32[12] concatenate(n, s), dimensions={0}"
    )
    assert kernels(program(lines)) == ["exponential", "fusion"]


def test_a_concatenation_of_many_stays_a_kernel_of_its_own() -> None:
    lines = [f"x{n} = f32[3] parameter({n})" for n in range(20)]
    names = ", ".join(f"x{n}" for n in range(20))
    lines += [f"c = f32[60] concatenate({names}), dimensions={{0}}", "ROOT e = f32[60] exponential(c)"]
    assert kernels(program("\n".join(lines))) == ["concatenate", "exponential"]


def test_a_halo_is_computed_where_it_is_sent() -> None:
    """The edge of an expensive value goes to a neighbour: nobody stores the whole value for that."""
    module = program(
        "x = f32[64,32] parameter(0)\ny = f32[64,32] exponential(x)\n"
        "edge = f32[1,32] slice(y), slice={[63:64], [0:32]}\n"
        "got = f32[1,32] collective-permute(edge), source_target_pairs={{0,1}}, channel_id=1\n"
        "rest = f32[63,32] slice(y), slice={[0:63], [0:32]}\n"
        "both = f32[64,32] concatenate(got, rest), dimensions={0}\nROOT s = f32[64,32] sine(both)",
        header=", num_partitions=2",
    )
    after = Fuse().run(EliminateDead().run(Simplify().run(module)))
    assert [i.opcode for i in after.entry if i.opcode != "parameter"] == ["fusion", "collective-permute", "fusion"]
    assert memory_analysis(lower(module, CHECKED))["peak_bytes"] <= 2 * 64 * 32 * 4 + 1024


def test_samples_that_are_much_together_are_read_from_memory() -> None:
    lines = ["x = f32[64] parameter(0)", "y = f32[64] exponential(x)", "z = f32[64] sine(y)"]
    lines += [f"cut{n} = f32[8] slice(y), slice={{[{8 * n}:{8 * n + 8}]}}" for n in range(4)]
    lines += ["ROOT t = (f32[64], f32[8], f32[8], f32[8], f32[8]) tuple(z, cut0, cut1, cut2, cut3)"]
    assert "exponential" in kernels(program("\n".join(lines)))


def test_a_splat_is_never_stored_for_two_indices() -> None:
    lines = (
        "x = f32[4,4] parameter(0)\nk = f32[] parameter(1)\nb = f32[4,4] broadcast(k), dimensions={}\n"
        "p = f32[4,4] add(x, b)\nt = f32[4,4] transpose(p), dimensions={1,0}\nROOT a = f32[4,4] multiply(t, b)"
    )
    assert kernels(program(lines)) == ["fusion"]


def test_an_argmax_counts_for_itself() -> None:
    """The positions that a variadic reduction compares are never stored."""
    argmax = """
pick {
  v = f32[] parameter(0)
  i = s32[] parameter(1)
  w = f32[] parameter(2)
  j = s32[] parameter(3)
  more = pred[] compare(v, w), direction=GT
  same = pred[] compare(v, w), direction=EQ
  first = pred[] compare(i, j), direction=LT
  tie = pred[] and(same, first)
  left = pred[] or(more, tie)
  x = f32[] select(left, v, w)
  k = s32[] select(left, i, j)
  ROOT t = (f32[], s32[]) tuple(x, k)
}
"""
    module = program(
        "x = f32[20,30] parameter(0)\nn = f32[20,30] sine(x)\nat = s32[20,30] iota(), iota_dimension=1\n"
        "low = f32[] constant(-inf)\nzero = s32[] constant(0)\n"
        "ROOT r = (f32[20], s32[20]) reduce(n, at, low, zero), dimensions={1}, to_apply=pick",
        argmax,
    )
    assert kernels(module) == ["fusion"]


def test_a_difference_from_a_mean_is_computed_by_each_reader() -> None:
    """It reads one whole array and a row: as much as the difference itself would be."""
    lines = (
        "x = f32[40,30] parameter(0)\nm = f32[30] parameter(1)\nz = f32[] constant(0)\n"
        "b = f32[40,30] broadcast(m), dimensions={1}\nd = f32[40,30] subtract(x, b)\ns = f32[40,30] multiply(d, d)\n"
        "v = f32[40] reduce(s, z), dimensions={1}, to_apply=sum\n"
        "w = f32[30] reduce(d, z), dimensions={0}, to_apply=sum\n"
        "ROOT t = (f32[40], f32[30]) tuple(v, w)"
    )
    assert kernels(program(lines)) == ["fusion", "fusion", "tuple"]


def test_parts_put_on_zeros_are_a_pad() -> None:
    """What lies where is known at run time only; nobody stores the ground, nor every step of filling it."""
    lines = (
        "x = f32[8,5] parameter(0)\ny = f32[2,5] parameter(1)\nat = s32[] parameter(2)\nzero = f32[] constant(0)\n"
        "o = s32[] constant(0)\ng = f32[12,5] broadcast(zero), dimensions={}\n"
        "a = f32[12,5] dynamic-update-slice(g, x, at, o)\nb = f32[12,5] dynamic-update-slice(a, y, o, o)\n"
        "up = f32[10,5] slice(b), slice={[2:12], [0:5]}\ndown = f32[10,5] slice(b), slice={[0:10], [0:5]}\n"
        "ROOT r = f32[10,5] subtract(up, down)"
    )
    assert kernels(program(lines)) == ["fusion", "fusion"]


def test_an_update_of_an_array_stays_an_update() -> None:
    lines = (
        "x = f32[8,5] parameter(0)\ny = f32[2,5] parameter(1)\nat = s32[] parameter(2)\no = s32[] constant(0)\n"
        "a = f32[8,5] dynamic-update-slice(x, y, at, o)\nROOT r = f32[8,5] exponential(a)"
    )
    assert kernels(program(lines)) == ["dynamic-update-slice", "exponential"]


@pytest.mark.parametrize(("opcode", "wanted"), [("negate", 1), ("exponential", 2)])
def test_little_arithmetic_is_repeated_at_two_indices(opcode: str, wanted: int) -> None:
    lines = (
        f"x = f32[40,6] parameter(0)\ne = f32[40,6] {opcode}(x)\nlow = f32[39,6] slice(e), slice={{[0:39], [0:6]}}\n"
        "high = f32[39,6] slice(e), slice={[1:40], [0:6]}\nROOT d = f32[39,6] subtract(high, low)"
    )
    assert len(kernels(program(lines))) == wanted


def test_movement_is_repeated_at_two_indices_but_not_what_it_moves() -> None:
    lines = (
        "x = f32[6] parameter(0)\ne = f32[6] exponential(x)\nb = f32[6,6] broadcast(e), dimensions={0}\n"
        "t = f32[6,6] transpose(b), dimensions={1,0}\nROOT d = f32[6,6] subtract(b, t)"
    )
    assert kernels(program(lines)) == ["exponential", "fusion"]
