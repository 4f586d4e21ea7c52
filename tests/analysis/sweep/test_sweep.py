"""Sweeps of small programs: the ranking, what cannot run, processes, pictures, the command."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import shardc
from shardc import Mesh, P, Program, ShapeDtype
from shardc.analysis.sweep.assess import Outcome
from shardc.analysis.sweep.result import SweepResult
from shardc.analysis.sweep.run import sweep
from shardc.hlo.errors import InputError, ShardcError, UnsupportedError

SETS = """
[sets.rows.annotate]
x = "data"
[sets.columns.annotate]
x = "data"
w = "None,model"
[sets.wrong.annotate]
nothing = "data"
"""


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is known from other tests."""
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "cache"))


def layer(rows: int = 4096) -> Program:
    """``relu(x @ w)`` from JAX: x is [rows, 1024], w [1024, 1024], on axes that the annotations bring."""
    x, w = jax.ShapeDtypeStruct((rows, 1024), jnp.bfloat16), jax.ShapeDtypeStruct((1024, 1024), jnp.bfloat16)
    return shardc.from_jax(jax.jit(lambda x, w: jax.nn.relu(x @ w)), x, w)


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sets") / "sets.toml"
    path.write_text(SETS, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "layer.mlir"
    path.write_text(layer().as_stablehlo(), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def result(sets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SweepResult]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHARDC_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        found = sweep(layer(), devices=[8, 16], machine="h100-dgx", sets=sets, axes=["data", "model"], jobs=1, refine=1)
    yield found


def test_candidates_are_what_simulate_says(result: SweepResult) -> None:
    """The independent way to the same figures, for the fastest that was not refined."""
    o = next(o for o in result.ranked if o.partitioned_for == "bytes" and o.set == "columns")
    specs = {"x": P("data"), "w": P(None, "model")}
    alone = layer().annotate(specs, mesh=Mesh(dict(o.mesh))).partition().simulate("h100-dgx")
    assert o.step_seconds == alone.step_seconds
    assert (o.mfu, o.peak_bytes, o.flops) == (alone.mfu, alone.peak_bytes, alone.flops)
    assert o.wire_bytes == sum(alone.link_bytes.values())


def test_the_ranking_is_by_devices_and_time(result: SweepResult) -> None:
    order = [(o.devices, o.step_seconds) for o in result.ranked]
    assert order == sorted(order)
    assert result.best.step_seconds == min(s for _, s in order)
    assert [o.devices for o in result.outcomes] == sorted(o.devices for o in result.outcomes)
    assert {n: o.step_seconds for n, o in result.best_by_devices.items()} == {
        n: min(s for d, s in order if d == n) for n in (8, 16)
    }


def test_every_candidate_is_there_with_its_reason(result: SweepResult) -> None:
    reasons = {(o.set, o.mesh_text): o.reason for o in result.failed if o.devices == 8}
    assert len([o for o in result.outcomes if o.devices == 8]) == 3 * 4
    assert reasons["rows", "data=4,model=2"] == "nothing is split over axis model"
    assert "nothing" in reasons["wrong", "data=8,model=1"]
    assert not any(o.set == "columns" for o in result.failed)


def test_strong_scaling(result: SweepResult) -> None:
    first, second = result.scaling
    assert (first.devices, first.speedup, first.efficiency) == (8, 1.0, 1.0)
    assert second.speedup == pytest.approx(first.step_seconds / second.step_seconds)
    assert second.efficiency == pytest.approx(second.speedup / 2)


def test_refining_never_makes_slower(sets: Path, result: SweepResult) -> None:
    plain = sweep(layer(), devices=8, machine="h100-dgx", sets=sets, axes=["data", "model"], jobs=1, refine=0)
    assert result.best_by_devices[8].step_seconds <= plain.best.step_seconds
    assert {o.partitioned_for for o in plain.ranked} == {"bytes"}


@pytest.mark.parametrize("refine", [0, 1, 20])
def test_rows_are_marked_that_were_partitioned_for_the_machine(sets: Path, refine: int) -> None:
    """None, one or all of those that are shown, with the meaning of the mark whenever it stands."""
    found = sweep(layer(), devices=8, machine="h100-dgx", sets=sets, axes=["data", "model"], jobs=1, refine=refine)
    told = [row[3].endswith(" *") for row in found.candidate_rows(20)]
    assert told == [o.partitioned_for == "machine" for o in found.top(20)]
    assert ("* partitioned for the machine" in str(found)) is any(told) is (refine > 0)
    if refine == 20:
        assert all(told)


def test_the_answer_does_not_depend_on_the_number_of_processes(file: Path, sets: Path, result: SweepResult) -> None:
    heard: list[tuple[int, int]] = []
    axes = ["data", "model"]
    two = sweep(
        file, devices="8,16", machine="h100-dgx", sets=sets, axes=axes, jobs=2, refine=1,
        progress=lambda *x: heard.append(x),
    )  # fmt: skip
    assert two.to_dict() == result.to_dict()
    assert [done for done, _ in heard] == list(range(1, len(heard) + 1))


def test_what_was_assessed_once_is_kept(
    file: Path, sets: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The same file again, under another name; another machine, other annotations and a damaged entry are new."""
    arguments: dict[str, Any] = {"devices": 8, "machine": "h100-dgx", "sets": sets, "axes": ["data", "model"]}
    arguments |= {"refine": 0, "jobs": 1}
    first = sweep(file, **arguments)
    copy = tmp_path / "copy.mlir"
    copy.write_bytes(file.read_bytes())
    assessed: list[str] = []

    def assess(program: Program, candidate: Any, settings: Any) -> Any:
        assessed.append(candidate.name)
        return Outcome(candidate.devices, dict(candidate.mesh), candidate.name, "not now")

    monkeypatch.setattr("shardc.analysis.sweep.where.assess", assess)
    assert sweep(copy, **arguments).to_dict() == first.to_dict()
    assert assessed == []
    sweep(file, **{**arguments, "machine": "a100-dgx", "axes": {"data": 8, "model": 1}})
    assert assessed == ["rows", "columns", "wrong"]
    entry = next((tmp_path / "cache" / "sweeps").glob("*/*.json"))
    entry.write_text("{")
    sweep(file, **arguments)
    assert len(assessed) in (3, 4)  # the damaged one may be the other machine's


def test_the_result_as_data_and_text(result: SweepResult, tmp_path: Path) -> None:
    result.save(tmp_path / "sweep.json")
    data = json.loads((tmp_path / "sweep.json").read_text())
    assert len(data["candidates"]) + len(data["failed"]) == len(result.outcomes)
    assert data["best"]["16"]["mesh"] == dict(result.best_by_devices[16].mesh)
    assert all("step_seconds" not in f for f in data["failed"])
    text = result.as_text(top=1)
    assert "strong scaling" in text
    assert "nothing is split over axis model" in text
    assert text.count(result.best.mesh_text) >= 1


def test_what_does_not_divide_is_told_unless_uneven_parts_are_wanted() -> None:
    arguments: dict[str, Any] = {"devices": [3], "machine": "h100-dgx", "sets": {"a": {"x": "data"}}, "axes": ["data"]}
    assert "x dimension 0 (4096) does not divide by data (3)" in sweep(layer(), **arguments).failed[0].reason
    assert sweep(layer(), uneven=True, **arguments).ranked


def test_meshes_that_the_limit_leaves_out_are_counted() -> None:
    sets = {"both": {"x": "data", "w": "None,model"}}
    arguments: dict[str, Any] = {"devices": [16], "machine": "h100-dgx", "sets": sets, "refine": 0}
    some, whole = sweep(layer(), limit=4, **arguments), sweep(layer(), **arguments)
    assert some.untried == len(whole.outcomes) - len(some.outcomes) > 0
    assert whole.untried == 0
    assert f"{some.untried} meshes not tried" in some.title
    assert "raise --limit" in str(some)
    assert "limit" not in str(whole)


def test_programs_that_split_nothing_are_told_what_to_do() -> None:
    found = sweep(layer(), devices=[4], machine="h100-dgx", mesh=Mesh({"data": 1}))
    assert not found.ranked
    assert "let --auto find annotations" in str(found)
    with pytest.raises(InputError, match="a Partitioned is not a program"):
        sweep(layer().partition(), devices=[4], machine="h100-dgx")


def test_what_is_larger_than_memory_is_told_with_numbers() -> None:
    x = jax.ShapeDtypeStruct((1 << 20, 1 << 20), jnp.float32)
    program = shardc.from_jax(jax.jit(lambda x: x + 1), x)
    arguments: dict[str, Any] = {"devices": [8], "machine": "h100-dgx", "sets": {"a": {"x": "data"}}, "axes": ["data"]}
    found = sweep(program, **arguments)
    assert found.failed[0].reason == "needs 1.0 TiB of 74.5 GiB memory"
    with pytest.raises(InputError, match=r"no candidate can run: needs 1\.0 TiB"):
        _ = found.best
    assert sweep(program, ignore_memory=True, **arguments).ranked


def test_weak_scaling_takes_a_program_per_number_of_devices() -> None:
    sets = {"rows": {"x": "data"}}
    found = sweep(lambda n: layer(1024 * n), devices=[2, 4], machine="h100-dgx", sets=sets, axes=["data"])
    assert found.weak
    assert [row.efficiency for row in found.scaling] == pytest.approx([1.0, 1.0])  # nothing is exchanged
    assert found.scaling[1].speedup == pytest.approx(2.0)
    with pytest.raises(InputError, match="1 programs were given for 2 numbers"):
        sweep([layer()], devices=[2, 4], machine="h100-dgx", sets=sets, axes=["data"])


def test_a_numpy_program_on_its_own_mesh() -> None:
    spec = ShapeDtype((8, 4), "float32")
    program = shardc.trace(lambda x: x.sum(), spec, mesh=Mesh({"x": 4}), in_shardings=P("x"))
    assert sweep(program, devices=[2, 4], machine="h100-dgx", jobs=2).best_by_devices.keys() == {2, 4}
    assert [o.mesh for o in sweep(program, devices=4, machine="h100-dgx", meshes=False).ranked] == [{"x": 4}]
    with pytest.raises(InputError, match="has 4 devices, but 8 are requested"):
        sweep(program, devices=8, machine="h100-dgx", meshes=False)


def test_tile_shardings_are_read_over_the_mesh_that_is_given(tmp_path: Path) -> None:
    """HLO text names no axes: ``[2,2]`` is data x model of the mesh, and follows it to other sizes."""
    path = tmp_path / "product.hlo"
    path.write_text(
        "HloModule m, num_partitions=4\n"
        "ENTRY e {\n"
        "  x = f32[64,64] parameter(0), sharding={devices=[2,2]<=[4]}\n"
        "  ROOT y = f32[64,64] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        "}\n",
        encoding="utf-8",
    )
    found = sweep(path, devices=[4, 8], machine="h100-dgx", mesh=Mesh({"data": 2, "model": 2}), jobs=1)
    assert not found.failed
    assert {tuple(o.mesh.values()) for o in found.ranked if o.devices == 8} == {(8, 1), (4, 2), (2, 4), (1, 8)}


def test_manual_computations_are_refused() -> None:
    mesh = Mesh({"x": 4}).to_jax()
    spec = jax.P("x")
    body = jax.shard_map(lambda x: jax.lax.psum(x, "x"), mesh=mesh, in_specs=spec, out_specs=jax.P())
    program = shardc.from_jax(jax.jit(body), jax.ShapeDtypeStruct((8,), jnp.float32))
    with pytest.raises(UnsupportedError, match=r"manual computations \(shard_map\)"):
        sweep(program, devices=[2, 4], machine="h100-dgx")
    assert sweep(program, devices=4, machine="h100-dgx", meshes=False).ranked


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"machine": "h100-dgxx"}, "no machine 'h100-dgxx'"),
        ({"devices": []}, "devices="),
        ({"devices": [8, 0]}, "devices="),
        ({"devices": "8-16"}, "'8-16' is not a number of devices"),
        ({"axes": None, "sets": {"a": {}}}, "no mesh axis is named"),
        ({"axes": {"data": "x"}}, "limit of an axis"),
        ({"axes": {"data": 3}}, "no mesh over data has 8 devices"),
        ({"limit": 0}, "limit is 0"),
        ({"sets": 3}, "sets must map each set's name"),
    ],
)
def test_bad_input(change: dict[str, Any], message: str) -> None:
    arguments = {"devices": [8], "machine": "h100-dgx", "sets": {"a": {"x": "data"}}, "axes": ["data"], **change}
    with pytest.raises(ShardcError, match=message):
        sweep(layer(), **arguments)


def test_pictures(result: SweepResult, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for suffix, begin in ((".png", b"\x89PNG"), (".svg", b"<?xml")):
        files = result.draw(tmp_path / "new", suffix)
        assert [f.name for f in files] == [f"scaling{suffix}", f"candidates{suffix}"]
        assert all(f.read_bytes().startswith(begin) for f in files)
    text = (tmp_path / "new" / "candidates.svg").read_text()
    assert "16:  data=8,model=2  columns" in text
    assert text == result.draw(tmp_path / "again", ".svg")[1].read_text()
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be created"):
        result.draw(tmp_path / "file")
    with pytest.raises(InputError, match="cannot be written as"):
        result.draw(tmp_path, ".jpg")


def shardc_sweep(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "shardc", "sweep", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_the_command(file: Path, sets: Path, result: SweepResult) -> None:
    done = shardc_sweep(
        file, "--devices", "8", "--over", f"mesh,{sets}", "--machine", "h100-dgx", "--mesh", "data=1,model=1",
        "--refine", "1", "-j", "1", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # no bar where there is no terminal
    wanted = [o.to_dict() for o in result.ranked if o.devices == 8]
    assert json.loads(done.stdout)["candidates"] == json.loads(json.dumps(wanted))


def test_the_command_says_what_is_wrong(file: Path, tmp_path: Path) -> None:
    done = shardc_sweep(file, file, "--devices", "8..32", "--machine", "h100-dgx", "--mesh", "data=1")
    assert done.returncode == 2
    assert "2 files were given for 3 numbers of devices (8, 16, 32)" in done.stderr
    done = shardc_sweep(file, "--devices", "8", "--machine", "h100-dgx", "--mesh", "data=1", "--annotate", "y=data")
    assert done.returncode == 1  # every candidate is listed with its reason
    assert "cannot run" in done.stdout


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")
def test_an_interrupt_ends_it_and_its_processes(file: Path, sets: Path) -> None:
    command = [
        sys.executable, "-m", "shardc", "sweep", str(file), "--devices", "2..65536", "--over", f"mesh,{sets}",
        "--machine", "h100-dgx", "--mesh", "data=1,model=1,more=1", "-j", "2",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    children: list[int] = []
    deadline = time.monotonic() + 60
    while len(children) < 3 and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
        children = children_of(process.pid)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert out == ""
    assert "Traceback" not in err
    assert len(children) == 3, "two workers, and the reader of MLIR"
    while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert time.monotonic() < deadline, err


def children_of(pid: int) -> list[int]:
    """Those that any of its threads has started."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(n) for text in lists for n in text.read_text().split()]


def test_times_that_are_infinite_never_reach_the_data(result: SweepResult) -> None:
    json.dumps(result.to_dict(), allow_nan=False)
    assert all(math.isfinite(o.step_seconds) for o in result.ranked)
