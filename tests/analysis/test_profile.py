"""Profiles: every execution is counted, the record is consistent, and results stay the same bits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardc
from shardc.compiler.cache.serialize import read_bytes, to_bytes
from shardc.compiler.emit.cpu_executable import build_executable
from shardc.costs.machines import measured_roofline as roofline_module
from shardc.costs.machines.measured_roofline import Roofline, roofline
from shardc.hlo.config import Config
from shardc.hlo.errors import InputError
from shardc.launcher.jobs.job import threads_per_process
from shardc.launcher.run.profile import Profile, table_cells
from shardc.native.llvm.jit import undefined_symbols
from shardc.native.llvm.target import host_target
from tests.cli.programs import MLP
from tests.compiler.checking import program

#: Seventy iterations that each multiply and scale, then a sum.
LOOP = """HloModule loop, input_output_alias={ {0}: (0, {}, must-alias) }

sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }

body {
  p = (s32[], f32[16,16]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  x = f32[16,16] get-tuple-element(p), index=1
  one = s32[] constant(1)
  m = s32[] add(n, one)
  d = f32[16,16] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[16,16] tanh(d)
  ROOT r = (s32[], f32[16,16]) tuple(m, t)
}

condition {
  p = (s32[], f32[16,16]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  last = s32[] constant(70)
  ROOT c = pred[] compare(n, last), direction=LT
}

ENTRY main {
  x = f32[16,16] parameter(0)
  start = s32[] constant(0)
  init = (s32[], f32[16,16]) tuple(start, x)
  w = (s32[], f32[16,16]) while(init), condition=condition, body=body
  y = f32[16,16] get-tuple-element(w), index=1
  zero = f32[] constant(0)
  total = f32[] reduce(y, zero), dimensions={0,1}, to_apply=sum
  ROOT out = (f32[16,16], f32[]) tuple(y, total)
}
"""


def compiled(tmp_path: Path, text: str) -> Any:
    (tmp_path / "program.hlo").write_text(text)
    return shardc.load(tmp_path / "program.hlo").partition().compile()


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Roofline:
    """A roofline that nobody has to measure."""
    given = Roofline(1, 8e9, {"f32": 1e9, "f64": 5e8})
    monkeypatch.setattr("shardc.launcher.run.profile.roofline", lambda config, threads, again: given)
    return given


@pytest.fixture
def looped(tmp_path: Path, limits: Roofline) -> tuple[Any, Profile]:
    step = compiled(tmp_path, LOOP)
    return step, step.profile(np.eye(16, dtype=np.float32), steps=3)


def test_every_execution_is_counted(looped: tuple[Any, Profile]) -> None:
    _, profile = looped
    (dot,) = (r for r in profile.summary() if "dot" in r.site.holds)
    assert dot.calls == 70
    assert (dot.site.read, dot.site.written, dot.site.flops) == (16 * 16 * 4, 16 * 16 * 4, 2 * 16**3 + 16**2)
    assert dot.site.holds == "dot f32[16,16] x f32[16,16], tanh -> f32[16,16]"
    events = profile.events[0]
    calls = np.bincount(events[:, 0], minlength=len(profile.sites))
    assert {r.site: r.calls for r in profile.rows} == {s: n for s, n in zip(profile.sites, calls, strict=True) if n}
    assert profile.dropped == 0
    # One part begins where the one before it ends.
    assert (events[1:, 1] == events[:-1, 2]).all()
    assert (events[:, 2] >= events[:, 1]).all()
    assert sum(r.of_step for r in profile.rows) == pytest.approx(1, abs=0.5)
    assert [r.seconds for r in profile.rows] == sorted((r.seconds for r in profile.rows), reverse=True)


def test_share_of_the_roofline(looped: tuple[Any, Profile]) -> None:
    (dot,) = (r for r in looped[1].summary() if "dot" in r.site.holds)
    # 2 KiB at 8 GB/s take less than 8448 operations at 1 GF/s.
    assert dot.of_roofline == pytest.approx(70 * 8448e-9 / dot.seconds)
    assert dot.bytes_per_second == pytest.approx(70 * 2048 / dot.seconds)


def test_normal_steps_have_no_clock(looped: tuple[Any, Profile]) -> None:
    step, _ = looped
    assert step.executable.profile is None
    assert "clock_gettime" not in undefined_symbols(*step.executable.objects)
    assert "clock_gettime" in undefined_symbols(*step._profiled.executable.objects)


def test_same_results_and_donated_arguments_stay(looped: tuple[Any, Profile]) -> None:
    step, _ = looped
    x = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)
    mine = step.driver.put(0, x)
    step.profile(mine)
    wanted = [np.asarray(r) for r in step._profiled(x)]
    for a, b in zip(step(mine), wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(a), b)


def test_table_and_trace(looped: tuple[Any, Profile], tmp_path: Path) -> None:
    _, profile = looped
    text = str(profile)
    assert "% of roofline" in text and "dot f32[16,16]" in text
    profile.trace(tmp_path / "t.json")
    trace = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    named = [e for e in trace if e["ph"] == "X"]
    assert len(named) == len(profile.events[0])
    assert min(e["ts"] for e in named) == 0
    assert {e["tid"] for e in named} == {0}
    assert [e["args"]["name"] for e in trace if e["name"] == "thread_name"] == ["device 0"]
    json.dumps(profile.as_dict(), allow_nan=False)


def test_threads(tmp_path: Path, limits: Roofline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_NUM_THREADS", "2")
    text = "HloModule big\n\nENTRY main {\n  x = f32[1000,1000] parameter(0)\n  ROOT y = f32[1000,1000] tanh(x)\n}\n"
    profile = compiled(tmp_path, text).profile(np.ones((1000, 1000), np.float32), steps=1)
    (row,) = profile.rows
    assert 0 < row.threads <= 2.01
    pieces = profile.chunks[0]
    # Every chunk once, and within the kernel.
    assert sorted(n for low, high in pieces[:, 3:].tolist() for n in range(low, high)) == list(
        range(pieces[:, 4].max())
    )
    (event,) = profile.events[0].tolist()
    assert event[1] <= pieces[:, 1].min() <= pieces[:, 2].max() <= event[2]
    trace = profile.trace_events()["traceEvents"]
    assert sum(e.get("cat") == "chunks" for e in trace) == len(pieces)
    assert {e["tid"] for e in trace} - {0} <= {1000, 1001}


def test_one_thread_where_nothing_is_handed_out(looped: tuple[Any, Profile]) -> None:
    assert {r.threads for r in looped[1].rows} == {1.0}
    assert len(looped[1].chunks[0]) == 0


def test_devices_and_collectives(tmp_path: Path, limits: Roofline) -> None:
    step = compiled(tmp_path, MLP)
    profile = step.profile(np.ones((8, 6), np.float32), np.ones((6, 10), np.float32), steps=2)
    assert sorted(profile.events) == [0, 1, 2, 3]
    (reduced,) = (r for r in profile.rows if r.site.kind == "collective")
    assert (reduced.calls, reduced.of_roofline) == (1, 0)
    trace = profile.trace_events()["traceEvents"]
    assert {e["tid"] for e in trace} == {0, 1, 2, 3, 2000, 2001}
    (exposed,) = (e for e in trace if e["tid"] == 2000 and e["ph"] == "X")
    (event,) = (e for e in trace if e["tid"] == 0 and e.get("cat") == "collective")
    assert event["ts"] <= exposed["ts"] + 1 and exposed["dur"] <= event["dur"] + 1  # a microsecond of rounding
    (call,) = profile.communication["collectives"]
    assert (call["times"], call["hidden"], call["asynchronous"]) == (1, 0, False)
    assert 0 < call["exposed"] <= call["slowest"] == profile.communication["exposed_seconds"]
    at_a_time = min(4, threads_per_process(step.config))
    assert profile.roofline.bytes_per_second == limits.bytes_per_second / at_a_time


def test_summary_adds_equal_kernels(tmp_path: Path, limits: Roofline) -> None:
    attrs = 'lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={source_file="f.py" source_line=3}'
    lines = [f"  d{n + 1} = f32[9,9] dot(d{n}, d{n}), {attrs}" for n in range(5)]
    text = "HloModule chain\n\nENTRY main {\n  d0 = f32[9,9] parameter(0)\n" + "\n".join(lines) + "\n"
    profile = compiled(tmp_path, text.replace("  d5 =", "  ROOT d5 =") + "}\n").profile(np.eye(9, dtype=np.float32))
    kernels = {r.site.kernel for r in profile.rows if "dot" in r.site.kernel}
    (row,) = (r for r in profile.summary() if r.site.kernel in kernels)
    assert row.calls == 5
    assert row.seconds == pytest.approx(sum(r.seconds for r in profile.rows if r.site.kernel in kernels))


def test_events_beyond_the_room_are_counted() -> None:
    executable = build_executable(program("ROOT x = f32[4] parameter(0)"), Config(), host_target(), profile=True)
    plan = executable.profile
    assert plan is not None
    arena = np.zeros(executable.arena_bytes, np.uint8)
    words = plan.record_integers(arena)
    words[1] = plan.events + 3
    assert plan.read(arena).dropped == 3
    assert len(plan.read(arena).events) == plan.events


def test_a_profiled_executable_travels_as_a_file() -> None:
    executable = build_executable(
        program("x = f32[4] parameter(0)\nROOT y = f32[4] tanh(x)"), Config(), host_target(), profile=True
    )
    assert read_bytes(to_bytes(executable)) == executable


def test_loaded_executables_cannot_be_compiled_again(tmp_path: Path) -> None:
    compiled(tmp_path, LOOP).save(tmp_path / "p.shardc")
    with pytest.raises(InputError, match="loaded as an executable"):
        shardc.load_executable(tmp_path / "p.shardc").profile(np.eye(16, dtype=np.float32))


def test_a_kernel_beyond_the_roofline_has_it_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Busy machines are slow: what is better counts, and caches are not asked forever."""
    speeds = iter([1e3, 4e3, 2e3, 3e3])
    monkeypatch.setattr(roofline_module, "copy_bandwidth", lambda threads: next(speeds))
    monkeypatch.setattr(roofline_module, "peak_flops", lambda threads: {"f32": 1e3, "f64": 1e3})
    step = compiled(tmp_path, LOOP)
    monkeypatch.setattr(
        "shardc.launcher.run.profile.roofline",
        lambda config, threads, again: roofline(Config(cache_dir=tmp_path), threads, again=again),
    )
    profiles = [step.profile(np.eye(16, dtype=np.float32), steps=1) for _ in range(5)]
    found = [p.roofline for p in profiles]
    assert [r.bytes_per_second for r in found] == [4e3] * 5
    assert [r.measured for r in found] == [2, 3, 4, 4, 4]
    assert "> 100" in [cells[-1] for cells in table_cells(profiles[0].as_dict()["summary"])]


def test_roofline_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []
    monkeypatch.setattr(roofline_module, "copy_bandwidth", lambda threads: float(measured.append(threads) or 2e9))
    monkeypatch.setattr(roofline_module, "peak_flops", lambda threads: {"f32": 4e9, "f64": 2e9})
    config = Config(cache_dir=tmp_path)
    first = roofline(config, 3)
    assert roofline(config, 3) == first == Roofline(3, 2e9, {"f32": 4e9, "f64": 2e9})
    assert measured == [3]
    (kept,) = (tmp_path / "roofline").iterdir()
    kept.write_text('{"threads": 3')
    assert roofline(config, 3) == first
    assert measured == [3, 3]
    assert (first.seconds(2000, 1000), first.seconds(0, 2000, "f64")) == (1e-6, 1e-6)
