"""The step function: control flow, suspension at collectives, buffers that share memory."""

from __future__ import annotations

import ctypes
from collections import Counter
from typing import Any

import numpy as np
import pytest

from shardc.compiler.emit.cpu_executable import build_executable
from shardc.compiler.executable import ARENA_HEADER, Executable
from shardc.compiler.load.step import load_step
from shardc.compiler.lower.fuse.fusion_rules import new_part
from shardc.compiler.lower.lowered import KernelStep, leaf_steps, memory_analysis
from shardc.compiler.lower.pipeline import lower
from shardc.hlo.evaluate import evaluate, evaluate_spmd
from shardc.hlo.ir.ir import Alias, Module
from shardc.native.llvm.target import host_target
from tests.compiler.checking import CHECKED, assert_close, check, compiled_results, program, random_arguments
from tests.compiler.evaluator_kernels import EvaluatorKernels
from tests.compiler.test_passes import LOOP, LOOP_ENTRY

FIBONACCI = """
body {
  p = (s32[], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  a = f32[4] get-tuple-element(p), index=1
  b = f32[4] get-tuple-element(p), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  c = f32[4] add(a, b)
  ROOT t = (s32[], f32[4], f32[4]) tuple(j, b, c)
}
condition {
  q = (s32[], f32[4], f32[4]) parameter(0)
  k = s32[] get-tuple-element(q), index=0
  n = s32[] constant(7)
  ROOT l = pred[] compare(k, n), direction=LT
}
"""

ENTRY = """
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  zero = s32[] constant(0)
  init = (s32[], f32[4], f32[4]) tuple(zero, x, y)
"""

#: Loop bodies that put carries into each other's places.
ROOTS = {
    "shift": "ROOT t = (s32[], f32[4], f32[4]) tuple(j, b, c)",
    "swap": "ROOT t = (s32[], f32[4], f32[4]) tuple(j, b, a)",
    "both": "ROOT t = (s32[], f32[4], f32[4]) tuple(j, c, c)",
    "keep": "ROOT t = (s32[], f32[4], f32[4]) tuple(j, a, c)",
    "duplicate": "ROOT t = (s32[], f32[4], f32[4]) tuple(j, b, b)",
}


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("native", [True, False])
def test_loop_carries(root: str, native: bool) -> None:
    before = FIBONACCI.replace(ROOTS["shift"], ROOTS[root])
    module = program(
        ENTRY + "loop = (s32[], f32[4], f32[4]) while(init), condition=condition, body=body\n"
        "a = f32[4] get-tuple-element(loop), index=1\nb = f32[4] get-tuple-element(loop), index=2\n"
        "d = f32[4] subtract(a, b)\nROOT r = (f32[4], f32[4], f32[4], f32[4]) tuple(d, a, b, x)",
        before,
    )
    args = random_arguments(module)
    got = compiled_results(module, args, None if native else EvaluatorKernels())
    assert_close(got, evaluate(module, args))


def test_loop_result_returned_whole() -> None:
    check(program(LOOP_ENTRY.replace("  loop =", "  ROOT loop ="), LOOP))


def test_loop_that_never_runs() -> None:
    check(program(ENTRY + "ROOT loop = (s32[], f32[4], f32[4]) while(init), condition=condition, body=body",
                  FIBONACCI.replace("constant(7)", "constant(0)")))  # fmt: skip


NESTED = """
inner_body {
  ip = (s32[], f32[4]) parameter(0)
  ii = s32[] get-tuple-element(ip), index=0
  ia = f32[4] get-tuple-element(ip), index=1
  ione = s32[] constant(1)
  ij = s32[] add(ii, ione)
  is = f32[4] sine(ia)
  ROOT it = (s32[], f32[4]) tuple(ij, is)
}
inner_condition {
  iq = (s32[], f32[4]) parameter(0)
  ik = s32[] get-tuple-element(iq), index=0
  in = s32[] constant(30)
  ROOT il = pred[] compare(ik, in), direction=LT
}
body {
  p = (s32[], f32[4], f32[2,4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  a = f32[4] get-tuple-element(p), index=1
  h = f32[2,4] get-tuple-element(p), index=2
  zero = s32[] constant(0)
  start = (s32[], f32[4]) tuple(zero, a)
  w = (s32[], f32[4]) while(start), condition=inner_condition, body=inner_body
  b = f32[4] get-tuple-element(w), index=1
  c = f32[4] add(a, b)
  row = f32[1,4] reshape(c)
  g = f32[2,4] dynamic-update-slice(h, row, i, zero)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT t = (s32[], f32[4], f32[2,4]) tuple(j, c, g)
}
condition {
  q = (s32[], f32[4], f32[2,4]) parameter(0)
  k = s32[] get-tuple-element(q), index=0
  n = s32[] constant(2)
  ROOT l = pred[] compare(k, n), direction=LT
}
"""


def test_nested_loops_that_collect_rows() -> None:
    module = program(
        "x = f32[4] parameter(0)\nh = f32[2,4] parameter(1)\nzero = s32[] constant(0)\n"
        "init = (s32[], f32[4], f32[2,4]) tuple(zero, x, h)\n"
        "ROOT loop = (s32[], f32[4], f32[2,4]) while(init), condition=condition, body=body",
        NESTED,
    )
    check(module)
    lowered = lower(module)
    (update,) = (
        s for s in leaf_steps(lowered.steps) if isinstance(s, KernelStep) and new_part(s.instruction) is not None
    )
    ((result, operand),) = update.in_place
    assert lowered.plan.ref(update.operands[operand]) == lowered.plan.ref(update.results[result])


BRANCHES = """
zero { z.p = (f32[5], f32[5]) parameter(0)
  z.a = f32[5] get-tuple-element(z.p), index=0
  ROOT z.t = (f32[5], f32[5]) tuple(z.a, z.a) }
one { o.p = (f32[5], f32[5]) parameter(0)
  o.a = f32[5] get-tuple-element(o.p), index=0
  o.b = f32[5] get-tuple-element(o.p), index=1
  o.c = f32[5] add(o.a, o.b)
  ROOT o.t = (f32[5], f32[5]) tuple(o.c, o.a) }
two { t.p = (f32[5], f32[5]) parameter(0)
  t.a = f32[5] get-tuple-element(t.p), index=0
  t.b = f32[5] get-tuple-element(t.p), index=1
  ROOT t.t = (f32[5], f32[5]) tuple(t.b, t.a) }
"""


@pytest.mark.parametrize("selector", [0, 1, 2, -3, 9])
def test_branches_clamp_their_index(selector: int) -> None:
    module = program(
        "k = s32[] parameter(0)\nx = f32[5] parameter(1)\ny = f32[5] parameter(2)\n"
        "p = (f32[5], f32[5]) tuple(x, y)\n"
        "c = (f32[5], f32[5]) conditional(k, p, p, p), branch_computations={zero, one, two}\n"
        "a = f32[5] get-tuple-element(c), index=0\nb = f32[5] get-tuple-element(c), index=1\n"
        "ROOT r = f32[5] subtract(a, b)",
        BRANCHES,
    )
    args = random_arguments(module)
    args[0] = np.array(selector, np.int32)
    check(module, args)


@pytest.mark.parametrize("truth", [True, False])
def test_predicates_choose_the_true_branch_first(truth: bool) -> None:
    module = program(
        "k = pred[] parameter(0)\nx = f32[5] parameter(1)\ny = f32[5] parameter(2)\n"
        "p = (f32[5], f32[5]) tuple(x, y)\n"
        "ROOT c = (f32[5], f32[5]) conditional(k, p, p), true_computation=one, false_computation=two",
        BRANCHES,
    )
    args = random_arguments(module)
    args[0] = np.array(truth)
    check(module, args)


def test_parameters_and_constants_as_results() -> None:
    check(
        program(
            "x = f32[3] parameter(0)\nk = s32[2] constant({4, 5})\nunused = f32[7] parameter(1)\n"
            "i = (s32[2], f32[3]) tuple(k, x)\nROOT t = (f32[3], f32[3], (s32[2], f32[3])) tuple(x, x, i)"
        )
    )


def test_empty_arrays() -> None:
    lines = "x = f32[0,3] parameter(0)\ny = f32[0,3] negate(x)\nz = f32[] constant(2)\n"
    lines += "s = f32[3] reduce(y, z), dimensions={0}, to_apply=sum\nROOT t = (f32[0,3], f32[3]) tuple(y, s)"
    check(program(lines))


@pytest.mark.parametrize("size", [1, 7, 13, 64, 1001])
def test_elementwise_in_place_at_odd_sizes(size: int) -> None:
    lines = [f"x0 = f32[{size}] parameter(0)"]
    lines += [f"e{n} = f32[{size}] sine(x{n})\nx{n + 1} = f32[{size}] add(e{n}, x{n})" for n in range(4)]
    module = program("\n".join([*lines, f"ROOT r = f32[{size}] negate(x4)"]))
    check(module)
    assert lower(module).plan.arena_bytes <= ARENA_HEADER + 2 * (size * 4 + 64)


# Collectives, performed here by hand: one Python loop instead of a transport.

GROUPS = "replica_groups={{0,1,2}}, channel_id=1, use_global_device_ids=true"

SPMD = """
sum { x.a = f32[] parameter(0)  x.b = f32[] parameter(1)  ROOT x.c = f32[] add(x.a, x.b) }
body {
  p = (s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  a = f32[2] get-tuple-element(p), index=1
  r = f32[2] all-reduce(a), to_apply=sum, GROUPS
  third = f32[] constant(0.25)
  tb = f32[2] broadcast(third), dimensions={}
  s = f32[2] multiply(r, tb)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT t = (s32[], f32[2]) tuple(j, s)
}
condition {
  q = (s32[], f32[2]) parameter(0)
  k = s32[] get-tuple-element(q), index=0
  n = s32[] constant(3)
  ROOT l = pred[] compare(k, n), direction=LT
}
""".replace("GROUPS", GROUPS)


def spmd_program() -> Module:
    return program(
        "x = f32[2] parameter(0)\nd = u32[] partition-id()\nf = f32[] convert(d)\n"
        "b = f32[2] broadcast(f), dimensions={}\n"
        "y = f32[2] add(x, b)\nzero = s32[] constant(0)\ninit = (s32[], f32[2]) tuple(zero, y)\n"
        "w = (s32[], f32[2]) while(init), condition=condition, body=body\n"
        "v = f32[2] get-tuple-element(w), index=1\n"
        f"g = f32[6] all-gather(v), dimensions={{0}}, {GROUPS}\n"
        "c = f32[2] collective-permute(y), source_target_pairs={{0,1},{1,2}}, channel_id=2\n"
        "ROOT t = (f32[6], f32[2]) tuple(g, c)",
        SPMD,
        ", num_partitions=3",
    ).with_(partitioned=True)


class Device:
    """One device's memory and its step."""

    def __init__(self, executable: Executable, number: int, args: list[np.ndarray]) -> None:
        self.number = number
        self.arena = np.zeros(executable.arena_bytes, np.uint8)
        self.arguments = [np.ascontiguousarray(a).reshape(-1).view(np.uint8).copy() for a in args]
        self.results = [np.zeros(s.local_shape.nbytes, np.uint8) for s in executable.results]
        self.constants = np.frombuffer(executable.constants, np.uint8).copy()

    def advance(self, step: Any) -> int:
        tables = [
            (ctypes.c_void_p * max(len(blocks), 1))(*(b.ctypes.data for b in blocks))
            for blocks in (self.arguments, self.results)
        ]
        return step(self.arena.ctypes.data, *tables, self.constants.ctypes.data, self.number)

    def view(self, ref: Any, dtype: Any) -> np.ndarray:
        spaces = {
            "arena": [self.arena],
            "argument": self.arguments,
            "result": self.results,
            "constant": [self.constants],
        }
        block = spaces[ref.space][ref.index]
        return block[ref.offset : ref.offset + ref.nbytes].view(dtype)


def perform(call: Any, devices: list[Device]) -> None:
    for o in call.operands:
        inputs = [d.view(o.operand, o.dtype.numpy).copy() for d in devices]
        for d in devices:
            out = d.view(o.result, o.dtype.numpy)
            if call.op == "all-reduce":
                assert call.reduction == "add"
                out[:] = sum(inputs)
            elif call.op == "all-gather":
                out[:] = np.concatenate(inputs)
            else:
                source = {t: s for s, t in call.groups.expand()}.get(d.number)
                out[:] = 0 if source is None else inputs[source]


@pytest.mark.parametrize("native", [True, False])
def test_step_stops_at_every_collective_and_goes_on(native: bool) -> None:
    module = spmd_program()
    kernels = {} if native else {"kernels": EvaluatorKernels()}
    executable = build_executable(module, CHECKED, host_target(), **kernels)
    assert executable.num_devices == 3
    step = load_step(executable)
    args = [random_arguments(module, seed) for seed in range(3)]
    devices = [Device(executable, n, args[n]) for n in range(3)]
    calls = {c.index: c for c in executable.collectives}
    for _ in range(2):  # a finished step starts again
        seen = []
        while True:
            stops = {d.advance(step) for d in devices}
            (stop,) = stops
            if stop < 0:
                break
            seen.append(calls[stop].op)
            perform(calls[stop], devices)
        assert Counter(seen) == {"all-reduce": 3, "all-gather": 1, "collective-permute": 1}
    for d, wanted in zip(devices, evaluate_spmd(module, args), strict=True):
        got = [
            r.view(s.local_shape.dtype.numpy).reshape(s.local_shape.dims)
            for r, s in zip(d.results, executable.results, strict=True)
        ]
        assert_close(got, wanted)


def donated_module(pairs: dict[int, int]) -> Module:
    module = program(
        "x = f32[9] parameter(0)\ny = f32[9] parameter(1)\nb = f32[9] sine(y)\na = f32[9] add(x, b)\n"
        "ROOT t = (f32[9], f32[9], f32[9]) tuple(a, x, y)"
    )
    return module.with_(aliases=tuple(Alias((r,), a) for r, a in pairs.items()))


@pytest.mark.parametrize("pairs", [{0: 0}, {1: 0, 2: 1}, {1: 1, 2: 0}, {0: 1, 1: 0}])
@pytest.mark.parametrize("shared", [True, False])
def test_donated_arguments_may_be_the_results_memory(pairs: dict[int, int], shared: bool) -> None:
    module = donated_module(pairs)
    executable = build_executable(module, CHECKED, host_target())
    assert dict(executable.aliases) == pairs
    args = random_arguments(module)
    device = Device(executable, 0, args)
    if shared:
        for r, a in executable.aliases:
            device.results[r] = device.arguments[a]
    assert device.advance(load_step(executable)) == -1
    assert_close([r.view(np.float32) for r in device.results], evaluate(module, args))
    if not shared:
        for block, arg in zip(device.arguments, args, strict=True):
            np.testing.assert_array_equal(block.view(np.float32), arg)


def test_memory_report_adds_up() -> None:
    report = memory_analysis(lower(spmd_program()))
    parts = ("argument_bytes", "result_bytes", "temporary_bytes", "communication_bytes")
    assert report["peak_bytes"] == sum(report[p] for p in parts) - report["aliased_bytes"]
    assert report["argument_bytes"] == 8 and report["result_bytes"] == 32
    assert report["communication_bytes"] > 0
    donated = memory_analysis(lower(donated_module({0: 0})))
    assert donated["aliased_bytes"] == 36
