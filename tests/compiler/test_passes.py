"""Passes on small programs: the structure that is left, and the same results."""

from __future__ import annotations

from collections import Counter

import pytest

from shardc.compiler.lower.expand.canonicalise_collectives import CanonicaliseCollectives
from shardc.compiler.lower.expand.expand_reducers import ExpandReducers
from shardc.compiler.lower.expand.inline_calls import InlineCalls
from shardc.compiler.lower.expand.remove_markers import RemoveMarkers
from shardc.compiler.lower.fuse.fuse import Fuse
from shardc.compiler.lower.pipeline import lower
from shardc.compiler.lower.schedule.order_for_memory import OrderForMemory, peak_bytes_of
from shardc.compiler.lower.simplify.simplify_loops import SimplifyLoops
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.evaluate import evaluate, evaluate_spmd
from shardc.hlo.ir.ir import Module
from shardc.hlo.simplify.eliminate_common import EliminateCommon
from shardc.hlo.simplify.eliminate_dead import EliminateDead
from shardc.hlo.simplify.fold_constants import FoldConstants
from shardc.hlo.simplify.simplify import Simplify
from shardc.hlo.text.printer import print_module
from shardc.hlo.verify import verify
from tests.compiler.checking import assert_close, program, random_arguments


def opcodes(module: Module) -> list[str]:
    return [i.opcode for i in module.entry if i.opcode not in ("parameter", "constant")]


def same_results(before: Module, after: Module) -> None:
    verify(after)
    args = random_arguments(before)
    assert_close(evaluate(after, args), evaluate(before, args), 0)


def test_calls_are_inlined_at_every_site() -> None:
    before = """
inner { i.x = f32[4] parameter(0)  ROOT i.r = f32[4] exponential(i.x) }
outer {
  o.x = f32[4] parameter(0)
  o.y = f32[4] call(o.x), to_apply=inner
  ROOT o.r = f32[4] add(o.x, o.y)
}
"""
    module = program(
        "x = f32[4] parameter(0)\na = f32[4] call(x), to_apply=outer\nROOT b = f32[4] call(a), to_apply=outer", before
    )
    after = InlineCalls().run(module)
    assert opcodes(after) == ["exponential", "add", "exponential", "add"]
    assert len(after.computations) == 1
    same_results(module, after)


def test_async_computations_run_where_they_start() -> None:
    before = "inner { i.x = f32[4] parameter(0)  ROOT i.r = f32[4] exponential(i.x) }"
    module = program(
        "x = f32[4] parameter(0)\ns = ((f32[4]), f32[4], u32[]) async-start(x), calls=inner\n"
        "u = ((f32[4]), f32[4], u32[]) async-update(s)\nd = f32[4] async-done(u)\nROOT n = f32[4] negate(d)",
        before,
    )
    after = InlineCalls().run(module)
    assert opcodes(after) == ["exponential", "negate"]
    same_results(module, after)


def test_loop_bodies_are_simplified() -> None:
    twice = "a4 = f32[4] negate(a2)\n  a5 = f32[4] negate(a4)\n  a3 = f32[4] add(a5, w)"
    body = LOOP.replace("a3 = f32[4] add(a2, w)", twice)
    module = program(LOOP_ENTRY + "ROOT r = f32[4] get-tuple-element(loop), index=1", body)
    after = Simplify().run(module)
    assert not any(i.opcode == "negate" for i in after.instructions())
    same_results(module, after)


def test_markers_go() -> None:
    module = program(
        "x = f32[4] parameter(0)\n"
        "t = (f32[4], f32[4]) tuple(x, x)\no = (f32[4], f32[4]) opt-barrier(t)\n"
        "e = f32[4] get-tuple-element(o), index=0\n"
        's = f32[4] custom-call(e), custom_call_target="Sharding", sharding={replicated}\n'
        "c = f32[4] copy(s)\nROOT n = f32[4] negate(c)"
    )
    after = Simplify().run(RemoveMarkers().run(module))
    assert opcodes(after) == ["negate"]
    same_results(module, after)


def test_common_subexpressions_and_reducers_are_shared() -> None:
    second = """
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
plus { d = f32[] parameter(0)  e = f32[] parameter(1)  ROOT f = f32[] add(d, e) }
"""
    module = program(
        "x = f32[4] parameter(0)\nz = f32[] constant(0)\ny = f32[] constant(0)\n"
        "r = f32[] reduce(x, z), dimensions={0}, to_apply=sum\n"
        "s = f32[] reduce(x, y), dimensions={0}, to_apply=plus\nROOT t = f32[] add(r, s)",
        second,
    )
    after = EliminateDead().run(EliminateCommon().run(module))
    assert opcodes(after) == ["reduce", "add"]
    assert len(after.computations) == 2
    same_results(module, after)


def test_constants_fold_up_to_the_limit() -> None:
    module = program(
        "a = f32[3] constant({1, 2, 3})\nb = f32[3] exponential(a)\nc = f32[3] multiply(b, a)\n"
        "i = f32[4096] iota(), iota_dimension=0\nd = f32[4096] negate(i)\nROOT t = (f32[3], f32[4096]) tuple(c, d)"
    )
    after = EliminateDead().run(FoldConstants().run(module))
    assert opcodes(after) == ["iota", "negate", "tuple"]
    same_results(module, after)


LOOP = """
body {
  p = (s32[], f32[4], f32[4], f32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  a = f32[4] get-tuple-element(p), index=1
  dead = f32[4] get-tuple-element(p), index=2
  c = f32[] get-tuple-element(p), index=3
  w = f32[4] get-tuple-element(p), index=4
  one = s32[] constant(1)
  j = s32[] add(i, one)
  cb = f32[4] broadcast(c), dimensions={}
  a2 = f32[4] multiply(a, cb)
  a3 = f32[4] add(a2, w)
  dead2 = f32[4] add(dead, a)
  ROOT t = (s32[], f32[4], f32[4], f32[], f32[4]) tuple(j, a3, dead2, c, w)
}
condition {
  q = (s32[], f32[4], f32[4], f32[], f32[4]) parameter(0)
  k = s32[] get-tuple-element(q), index=0
  n = s32[] constant(5)
  ROOT l = pred[] compare(k, n), direction=LT
}
"""

LOOP_ENTRY = """
  x = f32[4] parameter(0)
  v = f32[4] parameter(1)
  zero = s32[] constant(0)
  half = f32[] constant(0.5)
  init = (s32[], f32[4], f32[4], f32[], f32[4]) tuple(zero, x, x, half, v)
  loop = (s32[], f32[4], f32[4], f32[], f32[4]) while(init), condition=condition, body=body
"""


def test_loops_carry_only_what_changes_and_is_read() -> None:
    module = program(LOOP_ENTRY + "ROOT r = f32[4] get-tuple-element(loop), index=1", LOOP)
    after = Simplify().run(SimplifyLoops().run(module))
    (loop,) = (i for i in after.entry if i.opcode == "while")
    assert [str(s) for s in loop.shape.elements] == ["s32[]", "f32[4]", "f32[4]"]
    same_results(module, after)


def test_loop_whose_tuple_is_returned_keeps_all() -> None:
    module = program(LOOP_ENTRY.replace("  loop =", "  ROOT loop ="), LOOP)
    after = Simplify().run(SimplifyLoops().run(module))
    assert len(after.results) == 5
    same_results(module, after)


GROUPS = "replica_groups={{0,1},{2,3}}, channel_id=1, use_global_device_ids=true"

#: The collective, and opcodes of what lowering makes of it before simplification.
COLLECTIVES = {
    "all-gather inner": (f"ROOT r = f32[4,12] all-gather(x), dimensions={{1}}, {GROUPS}", "all-gather"),
    "all-gather leading": (f"ROOT r = f32[8,6] all-gather(x), dimensions={{0}}, {GROUPS}", "all-gather"),
    "all-gather several": (
        f"a = (f32[4,12], f32[4,12]) all-gather(x, y), dimensions={{1}}, {GROUPS}\n"
        "b = f32[4,12] get-tuple-element(a), index=0\nc = f32[4,12] get-tuple-element(a), index=1\n"
        "ROOT r = f32[4,12] subtract(b, c)",
        "all-gather",
    ),
    "reduce-scatter inner": (
        f"ROOT r = f32[4,3] reduce-scatter(x), dimensions={{1}}, to_apply=sum, {GROUPS}",
        "reduce-scatter",
    ),
    "reduce-scatter leading": (
        f"ROOT r = f32[2,6] reduce-scatter(x), dimensions={{0}}, to_apply=max, {GROUPS}",
        "reduce-scatter",
    ),
    "all-to-all inner": (
        "ROOT r = f32[4,6] all-to-all(x), dimensions={1}, replica_groups={{0,1},{2,3}}, channel_id=1",
        "all-to-all",
    ),
    "all-to-all tuple": (
        "t = (f32[4,6], f32[4,6]) all-to-all(x, y), replica_groups={{0,1},{2,3}}, channel_id=1\n"
        "a = f32[4,6] get-tuple-element(t), index=0\nb = f32[4,6] get-tuple-element(t), index=1\n"
        "ROOT r = f32[4,6] subtract(a, b)",
        "all-to-all",
    ),
    "all-reduce several": (
        f"t = (f32[4,6], f32[4,6]) all-reduce(x, y), to_apply=sum, {GROUPS}\n"
        "ROOT a = f32[4,6] get-tuple-element(t), index=1",
        "all-reduce",
    ),
    "permute": (
        "ROOT r = f32[4,6] collective-permute(x), source_target_pairs={{0,1},{1,2}}, channel_id=1",
        "collective-permute",
    ),
    "broadcast": (
        "ROOT r = f32[4,6] collective-broadcast(x), replica_groups={{1,0},{2,3}}, channel_id=1",
        "all-gather",
    ),
    "groups of equal size": (
        "ROOT r = f32[4,6] all-gather(x), dimensions={1}, replica_groups={{0},{1},{2},{3}}, channel_id=1, "
        "use_global_device_ids=true",
        "",
    ),
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives_become_leading(name: str) -> None:
    lines, kept = COLLECTIVES[name]
    module = program(
        "x = f32[4,6] parameter(0)\ny = f32[4,6] parameter(1)\n" + lines, header=", num_partitions=4"
    ).with_(partitioned=True)
    after = EliminateDead().run(Simplify().run(CanonicaliseCollectives().run(module)))
    verify(after)
    moved = {"transpose", "reshape", "slice", "concatenate", "tuple", "get-tuple-element", "subtract"}
    assert [o for o in opcodes(after) if o not in moved] == kept.split()
    assert all(tuple(i.attrs.get("dimensions", (0,))) == (0,) for i in after.entry if i.opcode.startswith("all-"))
    args = [random_arguments(module, seed) for seed in range(4)]
    for got, wanted in zip(evaluate_spmd(after, args), evaluate_spmd(module, args), strict=True):
        assert_close(got, wanted, 0)


REDUCERS = {
    "xor": ("s32", "a = s32[] parameter(0)  b = s32[] parameter(1)  ROOT c = s32[] xor(a, b)"),
    "the last member's": ("f32", "a = f32[] parameter(0)  ROOT b = f32[] parameter(1)"),
    "sum of squares' root": (
        "f32",
        "a = f32[] parameter(0)  b = f32[] parameter(1)  x = f32[] multiply(a, a)  y = f32[] multiply(b, b)  "
        "s = f32[] add(x, y)  ROOT c = f32[] sqrt(s)",
    ),
}


@pytest.mark.parametrize("name", REDUCERS)
@pytest.mark.parametrize("groups", ["{{0,1,2},{3,4,5}}", "{{0},{1},{2},{3},{4},{5}}", "{{0,1,2,3,4,5}}"])
def test_reductions_of_the_programs_own(name: str, groups: str) -> None:
    kind, body = REDUCERS[name]
    ids = f"replica_groups={groups}, channel_id=1, use_global_device_ids=true, to_apply=own"
    size = groups.split("}", maxsplit=1)[0].count(",") + 1
    module = program(
        f"x = {kind}[4,6] parameter(0)\ny = {kind}[5] parameter(1)\n"
        f"t = ({kind}[4,6], {kind}[5]) all-reduce(x, y), {ids}\na = {kind}[4,6] get-tuple-element(t), index=0\n"
        f"b = {kind}[5] get-tuple-element(t), index=1\n"
        f"s = {kind}[4,{6 // size}] reduce-scatter(x), dimensions={{1}}, {ids.replace('id=1', 'id=2')}\n"
        f"ROOT r = ({kind}[4,6], {kind}[5], {kind}[4,{6 // size}]) tuple(a, b, s)",
        f"own {{ {body} }}",
        ", num_partitions=6",
    ).with_(partitioned=True)
    after = EliminateDead().run(Simplify().run(CanonicaliseCollectives().run(ExpandReducers().run(module))))
    verify(after)
    args = [random_arguments(module, seed) for seed in range(6)]
    for got, wanted in zip(evaluate_spmd(after, args), evaluate_spmd(module, args), strict=True):
        assert_close(got, wanted)
    lower(module)


def fused(lines: str) -> tuple[Module, Module]:
    module = program(lines)
    after = Fuse().run(EliminateDead().run(Simplify().run(module)))
    same_results(module, after)
    return module, after


def test_softmax_is_four_kernels() -> None:
    _, after = fused(
        "x = f32[4,6] parameter(0)\nlow = f32[] constant(-inf)\nzero = f32[] constant(0)\n"
        "m = f32[4] reduce(x, low), dimensions={1}, to_apply=max\nmb = f32[4,6] broadcast(m), dimensions={0}\n"
        "d = f32[4,6] subtract(x, mb)\ne = f32[4,6] exponential(d)\n"
        "s = f32[4] reduce(e, zero), dimensions={1}, to_apply=sum\nsb = f32[4,6] broadcast(s), dimensions={0}\n"
        "ROOT r = f32[4,6] divide(e, sb)"
    )
    assert opcodes(after) == ["fusion"] * 4


def test_expensive_values_are_not_computed_twice() -> None:
    _, after = fused(
        "x = f32[4] parameter(0)\ne = f32[4] exponential(x)\na = f32[4] add(e, x)\nb = f32[4] multiply(e, x)\n"
        "ROOT t = (f32[4], f32[4]) tuple(a, b)"
    )
    assert Counter(opcodes(after)) == Counter(["exponential", "add", "multiply", "tuple"])


def test_broadcasts_are_repeated_in_every_reader() -> None:
    _, after = fused(
        "x = f32[4] parameter(0)\ny = f32[4,6] parameter(1)\nb = f32[4,6] broadcast(x), dimensions={0}\n"
        "a = f32[4,6] add(b, y)\nc = f32[4,6] multiply(b, y)\nROOT t = (f32[4,6], f32[4,6]) tuple(a, c)"
    )
    assert opcodes(after) == ["fusion", "fusion", "tuple"]


def test_what_is_computed_from_broadcasts_alone_is_not_stored() -> None:
    differences = (
        "x = f32[40] parameter(0)\ny = f32[30] parameter(1)\nb = f32[40,30] broadcast(x), dimensions={0}\n"
        "c = f32[40,30] broadcast(y), dimensions={1}\nd = f32[40,30] subtract(b, c)\n"
    )
    _, after = fused(
        differences + "e = f32[40,30] exponential(d)\ns = f32[40,30] sine(d)\n"
        "ROOT t = (f32[40,30], f32[40,30]) tuple(e, s)"
    )
    assert opcodes(after) == ["fusion", "fusion", "tuple"]


def test_expensive_values_do_not_move_under_a_broadcast() -> None:
    _, after = fused(
        "x = f32[4] parameter(0)\ny = f32[4,6] parameter(1)\ne = f32[4] exponential(x)\n"
        "b = f32[4,6] broadcast(e), dimensions={0}\nROOT a = f32[4,6] add(b, y)"
    )
    assert opcodes(after) == ["exponential", "fusion"]


def test_a_value_read_at_two_indices_stays_outside() -> None:
    _, after = fused(
        "x = f32[4,4] parameter(0)\ne = f32[4,4] exponential(x)\nt = f32[4,4] transpose(e), dimensions={1,0}\n"
        "ROOT a = f32[4,4] add(e, t)"
    )
    assert opcodes(after) == ["exponential", "fusion"]


def test_reshapes_at_the_edge_stay_aliases() -> None:
    _, after = fused(
        "x = f32[24] parameter(0)\ny = f32[4,6] reshape(x)\nn = f32[4,6] negate(y)\ne = f32[4,6] exponential(n)\n"
        "ROOT r = f32[24] reshape(e)"
    )
    assert opcodes(after) == ["reshape", "fusion", "reshape"]


def test_order_frees_memory_early() -> None:
    lines = ["x = f32[1000] parameter(0)", "z = f32[] constant(0)", "e0 = f32[1000] exponential(x)"]
    lines += [f"a{n} = f32[1000] sine(e0)\nb{n} = f32[1000] cosine(a{n})" for n in range(4)]
    lines += [f"r{n} = f32[] reduce(b{n}, z), dimensions={{0}}, to_apply=sum" for n in range(4)]
    lines += ["ROOT t = (f32[], f32[], f32[], f32[]) tuple(r0, r1, r2, r3)"]
    module = program("\n".join(lines))
    after = OrderForMemory().run(module)
    assert peak_bytes_of(after.entry) < peak_bytes_of(module.entry)
    same_results(module, after)


def test_lowering_is_deterministic() -> None:
    module = program(LOOP_ENTRY + "ROOT r = f32[4] get-tuple-element(loop), index=1", LOOP)
    first, second = lower(module), lower(module)
    assert print_module(first.module) == print_module(second.module)
    assert [p.ref for p in first.plan.placements.values()] == [p.ref for p in second.plan.placements.values()]
    assert first.constants.data == second.constants.data


def test_groups_beyond_the_devices_of_the_program_are_refused() -> None:
    text = "x = f32[4] parameter(0)\nROOT r = f32[4] all-reduce(x), replica_groups={{0,1}}, to_apply=sum"
    with pytest.raises(UnsupportedError, match="device 1, but the program is for 1 device"):
        lower(program(text))
