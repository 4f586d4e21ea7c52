"""Tuples wherever HLO has them: taken and given by calls, loops, branches and custom calls, nested and empty."""

from __future__ import annotations

import numpy as np
import pytest
from fuzz_cases import check_compiled
from partition_support import check, integers

from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.custom_calls import CustomCall
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.text.printer import print_module
from shardc.hlo.text.reader import read_hlo
from shardc.hlo.verify import verify
from shardc.launcher.arrays.gather import gather
from shardc.partitioner.partition import partition
from shardc.sharding.propagate import propagate
from shardc.stages.stages import Program

SPLIT = "sharding={devices=[2]<=[2]}"
NESTED = "(f32[4], (f32[4], f32[4]))"
#: a and b are arrays, t and n tuples of them.
GIVEN = f"""a = f32[4] parameter(0), {SPLIT}
  b = f32[4] parameter(1)
  t = (f32[4], f32[4]) tuple(a, b)
  n = {NESTED} tuple(b, t)
"""
FUNCTIONS = f"""
most {{ x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = f32[] maximum(x, y) }}
swap {{ p = {NESTED} parameter(0)
  q = (f32[4], f32[4]) get-tuple-element(p), index=1
  w = f32[4] get-tuple-element(q), index=0
  ROOT r = {NESTED} tuple(w, q) }}
same {{ ROOT p = {NESTED} parameter(0) }}
small {{ p = {NESTED} parameter(0)
  w = f32[4] get-tuple-element(p), index=0
  z = f32[] constant(0)
  m = f32[] reduce(w, z), dimensions={{0}}, to_apply=most
  k = f32[] constant(9)
  ROOT l = pred[] compare(m, k), direction=LT }}
grow {{ p = {NESTED} parameter(0)
  w = f32[4] get-tuple-element(p), index=0
  q = (f32[4], f32[4]) get-tuple-element(p), index=1
  o = f32[] constant(2)
  c = f32[4] broadcast(o), dimensions={{}}
  y = f32[4] add(w, c)
  ROOT r = {NESTED} tuple(y, q) }}
never {{ p = () parameter(0)
  ROOT k = pred[] constant(false) }}
nothing {{ ROOT p = () parameter(0) }}
one {{ x = f32[] parameter(0)
  y = f32[] parameter(1)
  s = f32[] maximum(x, y)
  ROOT r = (f32[]) tuple(s) }}
"""
#: What makes the tuple x, or the root.
PROGRAMS = {
    "barrier": f"x = {NESTED} opt-barrier(n)",
    "copy": "x = (f32[4], f32[4]) copy(t)",
    "constraint": f'x = {NESTED} custom-call(n), custom_call_target="Sharding",'
    " sharding={{devices=[2]<=[2]}, {replicated}, {devices=[2]<=[2]}}",
    "call": f"x = {NESTED} call(n), to_apply=swap",
    "fusion": f"x = {NESTED} fusion(n), kind=kLoop, calls=swap",
    "branch": f"i = s32[] constant(1)\n  x = {NESTED} conditional(i, n, n), branch_computations={{same,swap}}",
    "loop": f"x = {NESTED} while(n), condition=small, body=grow",
    "loop over nothing": "z = () tuple()\n  y = () while(z), condition=never, body=nothing\n  x = (f32[4]) tuple(b)",
    "empty within": "z = () tuple()\n  x = (f32[4], ()) tuple(a, z)",
    "empty argument": "z = () parameter(2)\n  x = (f32[4], ()) tuple(a, z)",
    "constant": "x = (f32[4], f32[4]) constant(({1,2,3,4}, {1,2,3,4}))",
    "domain": 'x = (f32[4], f32[4]) domain(t), domain={kind="sharding", entry={maximal device=0}, exit={replicated}}',
    "dependency": f"k = token[] after-all()\n  x = {NESTED} add-dependency(n, k)",
    "reduce to a tuple of one": "k = f32[] constant(0)\n  y = (f32[]) reduce(a, k), dimensions={0}, to_apply=one\n"
    "  s = f32[] get-tuple-element(y), index=0\n  c = f32[4] broadcast(s), dimensions={}\n  x = (f32[4]) tuple(c)",
}


def text(body: str) -> str:
    end = "e = f32[4] get-tuple-element(x), index=0\n  ROOT r = f32[4] add(e, a)"
    return f"HloModule m, num_partitions=2\n{FUNCTIONS}\nENTRY main {{\n  {GIVEN}  {body}\n  {end}\n}}\n"


@pytest.mark.parametrize("name", PROGRAMS)
def test_tuples(name: str) -> None:
    module = read_hlo(text(PROGRAMS[name]))
    read_hlo(print_module(module))
    whole = propagate(module).module
    args = [integers(np.random.default_rng(0), leaf) for p in whole.parameters for leaf in p.shape.leaves()]
    check(whole, args)
    if not any(p.shape.is_tuple for p in whole.parameters):
        check_compiled(whole)


@pytest.mark.parametrize(
    "call", ["f32[4] custom-call(t)", f"{NESTED} custom-call(n, a)", "(f32[4], ()) custom-call(t)"]
)
def test_custom_calls_take_tuples_whole(call: str) -> None:
    given = f'y = {call}, custom_call_target="mine"'
    shape = call.partition(" custom")[0]
    rest = "x = (f32[4]) tuple(y)" if shape == "f32[4]" else f"x = {shape} copy(y)"
    local = partition(propagate(read_hlo(text(f"{given}\n  {rest}"))).module)
    verify(local)
    made = next(i for i in local.entry if i.opcode == "custom-call")
    assert {leaf.dims for o in (*made.operands, made) for leaf in o.shape.leaves()} == {(4,)}


def test_a_custom_call_of_a_tuple_runs() -> None:
    def total(b: Builder, call: Instruction, t: Instruction) -> Instruction:
        return b.add("add", *(b.add("get-tuple-element", t, index=k) for k in range(2)))

    body = 'y = f32[4] custom-call(t), custom_call_target="mine"\n  x = (f32[4]) tuple(y)'
    program = Program(read_hlo(text(body))).with_custom_calls({"mine": CustomCall(expand=total)})
    a, b = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    (got,) = program.partition().compile().run([a, b])
    np.testing.assert_array_equal(gather(got), a + b + a)


@pytest.mark.parametrize("algorithm", ["rng_three_fry", "rng_philox", "rng_default"])
def test_random_bits_without_the_state(algorithm: str) -> None:
    bits = f"rng-bit-generator(s), algorithm={algorithm}, {SPLIT}"
    alone = f"HloModule m, num_partitions=2\nENTRY e {{\n s = u64[2] parameter(0)\n ROOT r = u32[6] {bits}\n}}"
    both = alone.replace("ROOT r = u32[6]", "x = (u64[2], u32[6])").replace(f", {SPLIT}", "")
    both = both.replace("\n}", "\n ROOT r = u32[6] get-tuple-element(x), index=1\n}")
    state = [np.array([3, 7], np.uint64)]
    module = propagate(read_hlo(alone)).module
    check(module, state)
    verify(read_hlo(print_module(read_hlo(alone))))
    np.testing.assert_array_equal(evaluate(read_hlo(alone), state)[0], evaluate(read_hlo(both), state)[0])
