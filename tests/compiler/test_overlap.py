"""Asynchronous collectives in compiled programs: whenever a transfer happens between start and done, bits are equal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.compiler.cache.cache import code_settings
from shardc.compiler.emit.cpu_executable import build_executable
from shardc.compiler.executable import WAIT, Executable
from shardc.compiler.load.step import load_step
from shardc.compiler.lower.lowered import AwaitStep, Collective, leaf_steps, memory_analysis
from shardc.compiler.lower.pipeline import PASSES, lower
from shardc.compiler.lower.schedule.order_transfers import model_timeline
from shardc.compiler.lower.schedule.overlap import Overlap, overlap_of
from shardc.compiler.lower.schedule.schedule import Schedule
from shardc.compiler.measured import program_key, write_measured
from shardc.costs.kernels.trips import trip_count
from shardc.hlo.config import Config
from shardc.hlo.evaluate import evaluate_spmd
from shardc.hlo.ir.ir import Alias, Module
from shardc.hlo.transforms.memory_limit import with_memory_limit
from shardc.native.llvm.target import host_target
from tests.compiler.checking import assert_close, program, random_arguments
from tests.compiler.test_step import Device

NEVER, ALWAYS = Config(check=True, overlap="never"), Config(check=True, overlap="always", overlap_memory=8.0)
DEVICES = 2
GROUPS = "replica_groups={{0,1}}, channel_id=1, use_global_device_ids=true"


def module_of(body: str) -> Module:
    return program(body, header=f", num_partitions={DEVICES}").with_(partitioned=True)


class Wire:
    """Does transfers between devices: at the start (``late`` false) or only when they are awaited. What the program
    must not touch meanwhile is checked, or filled with rubbish."""

    def __init__(self, devices: list[Device], *, late: bool) -> None:
        self.devices = devices
        self.late = late
        self.most = 0
        self._flying: dict[int, list[bytes]] = {}

    def stop(self, answer: int, calls: dict[int, Any]) -> None:
        call = calls[answer & ~WAIT]
        if answer & WAIT:
            before = self._flying.pop(call.index)
            if self.late:
                self._perform(call)
            else:
                assert before == self._bytes(call), "operands or results changed on the way"
        elif not call.asynchronous:
            self._perform(call)
        else:
            if self.late:
                self._spoil(call)
            else:
                self._perform(call)
            self._flying[call.index] = self._bytes(call)
            self.most = max(self.most, len(self._flying))

    def _bytes(self, call: Any) -> list[bytes]:
        refs = [(o.dtype, r) for o in call.operands for r in (o.operand, o.result)]
        return [d.view(r, t.numpy).tobytes() for d in self.devices for t, r in refs]

    def _spoil(self, call: Any) -> None:
        for o in call.operands:
            for d in self.devices:
                result = d.view(o.result, np.uint8)
                if not np.shares_memory(result, d.view(o.operand, np.uint8)):  # a donated argument is a result, too
                    result[:] = 0xA5

    def _perform(self, call: Any) -> None:
        count = len(self.devices)
        for o in call.operands:
            inputs = [d.view(o.operand, o.dtype.numpy).copy() for d in self.devices]
            total = sum(inputs[1:], inputs[0])
            for n, d in enumerate(self.devices):
                out = d.view(o.result, o.dtype.numpy)
                if call.op == "all-reduce":
                    out[:] = total
                elif call.op == "all-gather":
                    out[:] = np.concatenate(inputs)
                elif call.op == "reduce-scatter":
                    out[:] = total.reshape(count, -1)[n]
                elif call.op == "all-to-all":
                    out[:] = np.concatenate([x.reshape(count, -1)[n] for x in inputs])
                else:
                    source = {t: s for s, t in call.groups.expand()}.get(n)
                    out[:] = 0 if source is None else inputs[source]


def run(executable: Executable, args: list[list[np.ndarray]], *, late: bool = False) -> tuple[list[Any], int]:
    """Results by device, and the most transfers at a time; donated arguments are written over."""
    step = load_step(executable)
    devices = [Device(executable, n, args[n]) for n in range(DEVICES)]
    for d in devices:
        for result, argument in executable.aliases:
            d.results[result] = d.arguments[argument]
    calls = {c.index: c for c in executable.collectives}
    wire = Wire(devices, late=late)
    while True:
        (answer,) = {d.advance(step) for d in devices}
        if answer < 0:
            break
        wire.stop(answer, calls)
    results = [
        [r.view(s.local_shape.dtype.numpy).reshape(s.local_shape.dims)
         for r, s in zip(d.results, executable.results, strict=True)]
        for d in devices
    ]  # fmt: skip
    return results, wire.most


def compare(module: Module, config: Config = ALWAYS, arguments: list[Any] | None = None) -> tuple[Executable, int]:
    """Bits with and without overlap are the same; the executable with, and how many transfers were under way."""
    args = arguments or [random_arguments(module, seed) for seed in range(DEVICES)]
    plain, most = run(build_executable(module, NEVER, host_target()), args)
    assert most == 0
    for wanted, got in zip(evaluate_spmd(module, args), plain, strict=True):
        assert_close(got, wanted)
    executable = build_executable(module, config, host_target())
    most = 0
    for late in (False, True):
        results, flying = run(executable, args, late=late)
        most = max(most, flying)
        for wanted, got in zip(plain, results, strict=True):
            for a, b in zip(wanted, got, strict=True):
                np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))
    return executable, most


KINDS = {
    "all-reduce": f"f32[4,4] all-reduce(V), {GROUPS}, to_apply=sum",
    "all-gather": f"f32[8,4] all-gather(V), dimensions={{0}}, {GROUPS}",
    "reduce-scatter": f"f32[2,4] reduce-scatter(V), dimensions={{0}}, {GROUPS}, to_apply=sum",
    "all-to-all": "f32[4,4] all-to-all(V), dimensions={0}, replica_groups={{0,1}}, channel_id=1",
    "collective-permute": "f32[4,4] collective-permute(V), source_target_pairs={{0,1}}, channel_id=1",
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_collective_overlaps(kind: str) -> None:
    shape = KINDS[kind].split()[0]
    module = module_of(
        f"x = f32[4,4] parameter(0)\nw = f32[4,4] parameter(1)\nc = {KINDS[kind].replace('V', 'x')}\n"
        "d = f32[4,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        f"n = {shape} negate(c)\ns = f32[4,4] sine(d)\nROOT t = ({shape}, f32[4,4]) tuple(n, s)"
    )
    executable, most = compare(module)
    assert most == 1
    (call,) = executable.collectives
    assert call.asynchronous and call.op == kind


def test_an_all_reduce_in_place_stays_in_place() -> None:
    module = module_of(
        "x = f32[64] parameter(0)\ny = f32[64] parameter(1)\nn = f32[64] negate(x)\n"
        f"c = f32[64] all-reduce(n), {GROUPS}, to_apply=sum\n"
        "d = f32[64] sine(y)\nr = f32[64] reverse(c), dimensions={0}\ns = f32[64] reverse(d), dimensions={0}\n"
        "ROOT t = (f32[64], f32[64]) tuple(r, s)"
    )
    executable, most = compare(module)
    (call,) = executable.collectives
    assert most == 1 and call.asynchronous
    assert call.operands[0].operand == call.operands[0].result


LOOP = """
body {
  p = (s32[], f32[4,4], f32[4,4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  a = f32[4,4] get-tuple-element(p), index=1
  b = f32[4,4] get-tuple-element(p), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  c = f32[4,4] all-reduce(a), GROUPS, to_apply=sum
  d = f32[4,4] dot(b, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  e = f32[4,4] tanh(d)
  f = f32[4,4] tanh(c)
  ROOT t = (s32[], f32[4,4], f32[4,4]) tuple(j, e, f)
}
condition {
  q = (s32[], f32[4,4], f32[4,4]) parameter(0)
  k = s32[] get-tuple-element(q), index=0
  n = s32[] constant(3)
  ROOT l = pred[] compare(k, n), direction=LT
}
""".replace("GROUPS", GROUPS)


def test_loops_overlap_within_an_iteration() -> None:
    sum_ = (
        "sum {\n  sum.a = f32[] parameter(0)\n  sum.b = f32[] parameter(1)\n  ROOT sum.c = f32[] add(sum.a, sum.b)\n}"
    )
    body = (
        "x = f32[4,4] parameter(0)\ny = f32[4,4] parameter(1)\nzero = s32[] constant(0)\n"
        "init = (s32[], f32[4,4], f32[4,4]) tuple(zero, x, y)\n"
        "w = (s32[], f32[4,4], f32[4,4]) while(init), condition=condition, body=body\n"
        "g = f32[4,4] get-tuple-element(w), index=1\nh = f32[4,4] get-tuple-element(w), index=2\n"
        "ROOT t = (f32[4,4], f32[4,4]) tuple(g, h)"
    )
    module = program(body, sum_ + LOOP, f", num_partitions={DEVICES}").with_(partitioned=True)
    executable, most = compare(module)
    assert most == 1 and all(c.asynchronous for c in executable.collectives)
    (loop,) = (i for i in lower(module).module.entry if i.opcode == "while")
    assert trip_count(loop) == 3  # also when the counting is fused


PAIRS = {
    "own": (f"s = f32[64] all-reduce-start(x), {GROUPS}, to_apply=sum", "c = f32[64] all-reduce-done(s)"),
    "wrapped": ("s = ((f32[64]), f32[32]) async-start(x), calls=wrapped", "c = f32[32] async-done(s)"),
}
WRAPPED = f"""
sum {{
  sum.a = f32[] parameter(0)
  sum.b = f32[] parameter(1)
  ROOT sum.c = f32[] add(sum.a, sum.b)
}}
wrapped {{
  wx = f32[64] parameter(0)
  ROOT wr = f32[32] reduce-scatter(wx), dimensions={{0}}, {GROUPS}, to_apply=sum
}}
"""


@pytest.mark.parametrize("kind", PAIRS)
def test_pairs_of_the_program_stay_pairs(kind: str) -> None:
    start, done = PAIRS[kind]
    rows, shape = 4096, done.split()[2]
    module = program(
        f"x = f32[64] parameter(0)\ny = f32[{rows},64] parameter(1)\n{start}\n"
        f"w = f32[{rows},64] sine(y)\n{done}\nn = {shape} negate(c)\nROOT t = ({shape}, f32[{rows},64]) tuple(n, w)",
        WRAPPED,
        f", num_partitions={DEVICES}",
    ).with_(partitioned=True)
    executable, most = compare(module, Config(check=True))
    assert most == 1 and executable.collectives[0].asynchronous
    assert executable.memory["peak_bytes"] <= memory_analysis(lower(module, NEVER))["peak_bytes"]


def test_pairs_of_the_program_are_not_combined() -> None:
    start, done = PAIRS["own"]
    lines = [f"x{n} = f32[64] parameter({n})" for n in range(3)]
    for n in range(3):
        lines.append(start.replace("s =", f"st{n} =").replace("(x)", f"(x{n})"))
        lines.append(f"n{n} = f32[64] sine(x{n})")
        lines.append(done.replace("c =", f"c{n} =").replace("(s)", f"(st{n})"))
        lines.append(f"o{n} = f32[64] multiply(c{n}, n{n})")
    module = module_of("\n".join([*lines, "ROOT t = (f32[64], f32[64], f32[64]) tuple(o0, o1, o2)"]))
    assert len(lower(module, NEVER).collectives) == 3
    compare(module, Config(check=True))


def test_nothing_is_asynchronous_by_default_on_this_computer() -> None:
    module = module_of(
        f"x = f32[4096] parameter(0)\nc = f32[4096] all-reduce(x), {GROUPS}, to_apply=sum\n"
        "s = f32[4096] sine(x)\nROOT t = (f32[4096], f32[4096]) tuple(c, s)"
    )
    assert not any(c.asynchronous for c in lower(module).collectives)
    assert any(c.asynchronous for c in lower(module, ALWAYS).collectives)
    described = lower(module, Config(machine="h100-dgx"))
    assert not any(c.asynchronous for c in described.collectives)  # 16 KB: not worth a pair there


def gradients(layers: int, size: int) -> Module:
    """Layer by layer a product and the sum of its gradient over devices."""
    lines = [f"x = f32[{size},{size}] parameter(0)"]
    lines += [f"w{n} = f32[{size},{size}] parameter({n + 1})" for n in range(layers)]
    before = "x"
    for n in range(layers):
        lines.append(
            f"d{n} = f32[{size},{size}] dot({before}, w{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        )
        lines.append(f"c{n} = f32[{size},{size}] all-reduce(d{n}), {GROUPS}, to_apply=sum")
        lines.append(f"g{n} = f32[{size},{size}] add(c{n}, w{n})")
        before = f"d{n}"
    shapes = ", ".join([f"f32[{size},{size}]"] * layers)
    lines.append(f"ROOT t = ({shapes}) tuple({', '.join(f'g{n}' for n in range(layers))})")
    return module_of("\n".join(lines))


def described(limit: float, transfers: int = 4) -> tuple[Any, ...]:
    overlap = overlap_of(Config(overlap="always"))
    assert overlap is not None
    overlap = replace(overlap, memory=limit, transfers=transfers)
    return tuple(replace(p, overlap=overlap) if hasattr(p, "overlap") else p for p in PASSES)


def test_memory_stays_within_its_limit() -> None:
    module = gradients(6, 1100)  # too large to be combined
    peak = memory_analysis(lower(module, NEVER))["peak_bytes"]
    arguments = sum(p.shape.nbytes for p in module.parameters)
    seen = set()
    for limit in (1.0, 1.1, 1.5, 3.0):
        lowered = lower(module, Config(check=True, overlap="never"), passes=described(limit))
        assert memory_analysis(lowered)["peak_bytes"] - arguments <= limit * (peak - arguments)
        seen.add(sum(c.asynchronous for c in lowered.collectives))
    assert max(seen) >= 5


def test_more_memory_makes_no_schedule_slower() -> None:
    """Schedules stay within the memory that a program was planned for, and use what there is."""
    module = gradients(6, 1100)
    least = memory_analysis(lower(module, NEVER))["peak_bytes"]
    overlap = overlap_of(Config(overlap="always"))
    assert overlap is not None
    passes = described(3.0)
    most = memory_analysis(lower(module, NEVER, passes=passes))["peak_bytes"]
    seconds = []
    for limit in np.linspace(least, most, 8):
        lowered = lower(with_memory_limit(module, limit), NEVER, passes=passes)
        assert memory_analysis(lowered)["peak_bytes"] <= limit
        seconds.append(model_timeline(lowered.module, overlap).seconds)
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[0] > seconds[-1]


@st.composite
def programs(draw: st.DrawFn) -> Module:
    lines = ["v0 = f32[4,4] parameter(0)", "v1 = f32[4,4] parameter(1)"]
    for n in range(2, 2 + draw(st.integers(2, 14))):
        a, b = (f"v{draw(st.integers(0, n - 1))}" for _ in range(2))
        kind = draw(st.sampled_from(["kernel", "dot", *KINDS]))
        if kind == "kernel":
            lines.append(f"v{n} = f32[4,4] {draw(st.sampled_from(['add', 'maximum', 'subtract']))}({a}, {b})")
        elif kind == "dot":
            lines.append(f"e{n} = f32[4,4] dot({a}, {b}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}")
            lines.append(f"v{n} = f32[4,4] tanh(e{n})")
        elif kind == "all-gather":
            lines.append(f"e{n} = {KINDS[kind].replace('V', a)}")
            lines.append(f"v{n} = f32[4,4] slice(e{n}), slice={{[2:6], [0:4]}}")
        elif kind == "reduce-scatter":
            lines.append(f"e{n} = {KINDS[kind].replace('V', a)}")
            lines.append(f"v{n} = f32[4,4] concatenate(e{n}, e{n}), dimensions={{0}}")
        else:
            lines.append(f"v{n} = {KINDS[kind].replace('V', a)}")
    count = len([line for line in lines if line.startswith("v")])
    kept = draw(st.lists(st.integers(2, count - 1), min_size=1, max_size=4, unique=True))
    shapes = ", ".join(["f32[4,4]"] * len(kept))
    lines.append(f"ROOT t = ({shapes}) tuple({', '.join(f'v{k}' for k in kept)})")
    module = module_of("\n".join(lines))
    donated = draw(st.lists(st.integers(0, 1), unique=True, max_size=min(2, len(kept))))
    return module.with_(aliases=tuple(Alias((n,), a) for n, a in enumerate(donated)))


BRANCHES = f"""
sum {{
  sum.a = f32[] parameter(0)
  sum.b = f32[] parameter(1)
  ROOT sum.c = f32[] add(sum.a, sum.b) }}
one {{ o.p = (f32[4,4], f32[4,4]) parameter(0)
  o.a = f32[4,4] get-tuple-element(o.p), index=0
  o.b = f32[4,4] get-tuple-element(o.p), index=1
  o.r = f32[4,4] all-reduce(o.a), {GROUPS}, to_apply=sum
  o.d = f32[4,4] dot(o.b, o.b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  o.t = f32[4,4] tanh(o.d)
  ROOT o.s = f32[4,4] add(o.r, o.t) }}
other {{ z.p = (f32[4,4], f32[4,4]) parameter(0)
  z.a = f32[4,4] get-tuple-element(z.p), index=0
  ROOT z.n = f32[4,4] negate(z.a) }}
"""


@pytest.mark.parametrize("number", [0, 1])
def test_branches_overlap(number: int) -> None:
    body = (
        f"x = f32[4,4] parameter(0)\ny = f32[4,4] parameter(1)\nk = s32[] constant({number})\n"
        "z = s32[] parameter(2)\nm = s32[] multiply(z, k)\nn = s32[] minimum(m, k)\n"
        "u = (f32[4,4], f32[4,4]) tuple(x, y)\n"
        "ROOT c = f32[4,4] conditional(n, u, u), branch_computations={one, other}"
    )
    module = program(body, BRANCHES, f", num_partitions={DEVICES}").with_(partitioned=True)
    arguments = [[*random_arguments(module, seed)[:2], np.array(1, np.int32)] for seed in range(DEVICES)]
    executable, most = compare(module, arguments=arguments)
    assert most == (number == 0) and executable.collectives[0].asynchronous


def test_a_donated_argument_is_reduced_in_place() -> None:
    """The result of the all-reduce is its operand's memory under another name."""
    body = (
        "x = f32[4,4] parameter(0)\ny = f32[4,4] parameter(1)\n"
        "r = f32[4,4] all-reduce(y), replica_groups={{0,1}}, channel_id=1, use_global_device_ids=true, to_apply=sum\n"
        "z = f32[4,4] add(x, x)\nROOT t = (f32[4,4], f32[4,4]) tuple(r, z)"
    )
    aliases = "input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }"
    executable, _ = compare(program(body, header=f", num_partitions={DEVICES}, {aliases}").with_(partitioned=True))
    assert executable.aliases == ((0, 0), (1, 1))


@settings(max_examples=25, deadline=None)
@given(programs())
def test_random_programs(module: Module) -> None:
    compare(module)


@settings(max_examples=60, deadline=None)
@given(programs(), st.sampled_from([1, 2, 4]))
def test_random_programs_lower_within_limits(module: Module, transfers: int) -> None:
    """`check_plan` runs in `lower`; every start has one done behind it, in flight at most as many as allowed."""
    lowered = lower(module, Config(check=True, overlap="never"), passes=described(1.0, transfers))
    flying: set[Collective] = set()
    for step in leaf_steps(lowered.steps):
        if isinstance(step, Collective) and step.asynchronous:
            flying.add(step)
            assert len(flying) <= transfers
        elif isinstance(step, AwaitStep):
            flying.remove(step.started)
    assert not flying
    plain = lower(module, NEVER)
    written = [lo.plan.arena_bytes + sum(r.nbytes for r in lo.results) for lo in (lowered, plain)]
    assert written[0] <= written[1]


def test_overlap_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_OVERLAP", "never")
    assert overlap_of(Config.from_environment()) is None
    found = overlap_of(Config(machine="tpu-v4"))
    assert isinstance(found, Overlap) and (found.transfers, found.machine.name) == (4, "tpu-v4")
    assert overlap_of(Config(spare_cores=True)).transfers == 1  # type: ignore[union-attr]
    assert Schedule().run(module := gradients(1, 4)) is module


def test_measured_times_count_instead_of_the_model(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    module = gradients(2, 1100)
    path = tmp_path / "times.json"
    config = Config(spare_cores=True, overlap_memory=8.0, profile=path)
    assert any(c.asynchronous for c in lower(module, replace(config, profile=None)).collectives)
    write_measured(path, program_key(module), "test", {"c0": 1e-7, "c1": 1e-7})
    assert {c.asynchronous for c in lower(module, config).collectives} == {False}
    write_measured(path, program_key(gradients(3, 8)), "other", {"c0": 1.0})
    assert {c.asynchronous for c in lower(module, config).collectives} == {False}
    assert not caplog.records
    lower(gradients(2, 8), config)
    assert "no times of this program" in caplog.text


def test_measured_waiting_is_hidden_without_a_spare_core(tmp_path: Path) -> None:
    module = gradients(2, 1100)
    path = tmp_path / "times.json"
    config = Config(overlap_memory=8.0, profile=path)
    for seconds, found in ((2e-3, False), (0.5, True)):  # 5 MB, about 2 ms
        write_measured(path, program_key(module), "test", {"c0": seconds, "c1": seconds})
        assert any(c.asynchronous for c in lower(module, config).collectives) == found


def test_cached_programs_know_their_settings(tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    seen = [code_settings(c) for c in (Config(), ALWAYS, Config(machine="tpu-v4"), Config(profile=path))]
    write_measured(path, "key", "p", {"c0": 1.0})
    seen.append(code_settings(Config(profile=path)))
    assert len(set(seen)) == 5 and seen[0] == ()
