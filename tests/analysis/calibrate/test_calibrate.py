"""`shardc calibrate`: the fits against a computer of known rates, the file, and what goes wrong."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import synthetic_clock as known
from synthetic_clock import SyntheticClock

from shardc.analysis.calibrate import calibrate as module
from shardc.analysis.calibrate.calibrate import QUICK, Effort, calibrate
from shardc.analysis.calibrate.clock import Timing
from shardc.analysis.calibrate.describe import machine_text
from shardc.analysis.calibrate.exchanges import collective_loops
from shardc.analysis.calibrate.keep import check_place, keep
from shardc.analysis.calibrate.memory import memory_loops
from shardc.analysis.calibrate.operations import empty_loop, operation_loops
from shardc.analysis.calibrate.products import convolution_loops, product_loops
from shardc.analysis.calibrate.programs import arguments_of, module_text
from shardc.cli.app import main
from shardc.costs.machines.machine import load_machine
from shardc.costs.machines.measured import RANKS, VIRTUAL, Measured, interpolate, read_measured_table
from shardc.hlo.errors import InputError
from shardc.hlo.text.reader import read_hlo
from shardc.hlo.verify import verify


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Measured:
    """What is found on the synthetic computer of two cores."""
    monkeypatch.setattr(module, "usable_cores", lambda: 2)
    return calibrate(Effort(rounds=3), SyntheticClock())  # type: ignore[arg-type]


def test_the_fits_find_the_rates_again(measured: Measured) -> None:
    busy = measured.busy
    assert (busy.devices, busy.threads) == (2, 1)
    for key in ("add f32", "multiply f64", "maximum f32", "select f32", "xor s32", "add bf16", "convert f32 f64"):
        assert busy.operations[key] == pytest.approx(known.SIMPLE), key
    for key in ("exponential f32", "tanh f64", "power f32", "rsqrt f32"):
        assert busy.operations[key] == pytest.approx(known.COSTLY), key
    assert busy.operations["reduce-rows f32"] == pytest.approx(known.REDUCED)
    assert busy.operations["row f32"] == pytest.approx(known.ROW)
    assert busy.operations["concatenate-last f32"] == pytest.approx(known.MOVED)
    assert busy.operations["sort f32"] == pytest.approx(known.MOVED)
    for points, rate in ((busy.read, known.READ), (busy.write, known.WRITE), (busy.update, known.UPDATE)):
        assert [y for _, y in points] == pytest.approx([rate] * len(points))
    for m, n, k, seconds in busy.products["f32"]:
        assert seconds == pytest.approx(m * n * k * known.PRODUCT)
    for points in busy.convolutions.values():
        assert [y for _, y in points] == pytest.approx([known.CONVOLUTION] * len(points))


def test_times_that_no_processor_reaches_are_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Other work disturbed the short chain of additions, so that the long one takes hardly longer."""

    class Disturbed(SyntheticClock):
        def kernels(self, *args: Any) -> Mapping[str, Timing]:
            found = dict(super().kernels(*args))
            return found | ({"add f32 x4": found["add f32 x16"]} if "add f32 x4" in found else {})

    monkeypatch.setattr(module, "usable_cores", lambda: 1)
    calibrate(Effort(), SyntheticClock())  # type: ignore[arg-type]
    assert not caplog.messages
    calibrate(Effort(), Disturbed())  # type: ignore[arg-type]
    assert "the times of add f32 are too short" in caplog.text


def test_several_threads_cost_what_they_cost_more(measured: Measured) -> None:
    assert [(r.devices, r.threads) for r in measured.rates] == [(1, 2), (1, 1), (2, 1)]
    assert [r.parallel_seconds for r in measured.rates] == pytest.approx([known.PARALLEL, 0.0, 0.0])
    assert measured.rates_for(1, 2).threads == 2
    assert measured.rates_for(4, 1).devices == 2


def test_collectives_and_steps(measured: Measured) -> None:
    assert {(c.where, c.members) for c in measured.collectives} == {(w, n) for w in (RANKS, VIRTUAL) for n in (2, 4)}
    for c in measured.collectives:
        assert c.points[-1][1] == pytest.approx(c.members * known.LATENCY + (1 << 22) / known.BANDWIDTH)
    assert measured.step_seconds(4, 10) == pytest.approx(4 * known.STEP + 10 * known.ARRAY)
    assert measured.step_seconds(1, 0) == pytest.approx(known.STEP)


def test_one_round_of_a_quick_calibration_asks_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "usable_cores", lambda: 1)
    clock, heard = SyntheticClock(), []
    found = calibrate(QUICK, clock, lambda what, done, of: heard.append((done, of)))  # type: ignore[arg-type]
    assert set(clock.asked) == {(1, 1)}
    assert "tanh f32" in found.busy.operations and "tanh f64" not in found.busy.operations
    assert [done for done, _ in heard] == list(range(len(heard)))
    assert {of for _, of in heard} == {len(heard)}


def test_the_file_holds_what_was_found(measured: Measured, tmp_path: Path) -> None:
    path = tmp_path / "new" / "mine.toml"
    keep(path, machine_text(measured, "mine"))
    machine = load_machine(path)
    assert machine.name == "mine" and machine.device.kind == "cpu" and machine.levels[0].size == 0
    again = machine.measured
    assert again is not None
    assert (again.cpu, again.cores, again.created, again.where) == (measured.cpu, 2, measured.created, RANKS)
    for a, b in zip(again.rates, measured.rates, strict=True):
        assert a.operations == pytest.approx(dict(b.operations), rel=1e-3)
        assert a.products.keys() == b.products.keys()
        assert [p[3] for p in a.products["f32"]] == pytest.approx([p[3] for p in b.products["f32"]], rel=1e-3)
        assert a.parallel_seconds == pytest.approx(b.parallel_seconds, rel=1e-3)
    assert [c.points[0] for c in again.collectives] == [pytest.approx(c.points[0]) for c in measured.collectives]
    assert machine.device.flops["f32"] == pytest.approx(2 / known.PRODUCT, rel=1e-3)


def test_this_computer_is_found_where_it_was_kept(
    measured: Measured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("platformdirs.user_data_dir", lambda name: str(tmp_path / name))
    with pytest.raises(InputError, match="shardc calibrate"):
        load_machine("this")
    keep(tmp_path / "shardc" / "machines" / "this.toml", machine_text(replace(measured, cpu="abacus")))
    with caplog.at_level(logging.WARNING, "shardc"):
        ranks, virtual = load_machine("this").measured, load_machine("this-virtual").measured
    assert ranks is not None and virtual is not None
    assert (ranks.where, virtual.where) == (RANKS, VIRTUAL)
    assert "abacus" in caplog.text


def test_lines_in_logarithms() -> None:
    points = ((1.0, 2.0), (100.0, 20.0))
    assert interpolate(points, 10.0) == pytest.approx(40**0.5)
    assert (interpolate(points, 0.1), interpolate(points, 1e9)) == (2.0, 20.0)


def test_every_loop_is_a_program() -> None:
    loops = [empty_loop(), *operation_loops(), *memory_loops(small=True), *convolution_loops()]
    loops += product_loops(small=True)
    verify(read_hlo(module_text(loops)))
    assert len({loop.name for loop in loops}) == len(loops)
    assert len(arguments_of(loops[:3])) == sum(1 + len(loop.shapes) for loop in loops[:3])
    for devices in (2, 4):
        exchanges = collective_loops(devices, computing=devices == 4)
        exchanged = read_hlo(module_text(exchanges, devices))
        verify(exchanged)
        assert exchanged.num_partitions == devices


@pytest.mark.parametrize(
    ("change", "said"),
    [("cores", "cores"), ("rates", "rates"), ("bad number", "positive"), ("no points", "without points")],
)
def test_broken_files_are_told(measured: Measured, change: str, said: str) -> None:
    table = tomllib.loads(machine_text(measured))["measured"]
    if change in table:
        del table[change]
    elif change == "bad number":
        table["rates"][0]["operations"]["add f32"] = -1.0
    else:
        table["collectives"][0]["points"] = []
    with pytest.raises(InputError, match=said) as raised:
        read_measured_table(table, "x.toml")
    assert "shardc calibrate" in str(raised.value)


def test_not_inside_of_a_job(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PMI_SIZE", "4")
    monkeypatch.setenv("PMI_RANK", "0")
    with pytest.raises(InputError, match="4 ranks"):
        calibrate(QUICK, SyntheticClock())  # type: ignore[arg-type]


def test_places_are_checked_before_anything_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "this.toml"):
        with pytest.raises(InputError):
            check_place(path)
    assert main(["calibrate", "--quick", "-o", str(tmp_path / "file" / "this.toml")]) == 2
    assert "the calibration cannot be written" in capsys.readouterr().err


@pytest.mark.full
def test_this_computer_can_be_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "this.toml"
    assert main(["calibrate", "--quick", "-o", str(path)]) == 0
    found = load_machine(path).measured
    assert found is not None and not found.stale()
    assert {c.where for c in found.collectives} == {RANKS, VIRTUAL}
    # Wide bounds: any computer of these years is within.
    assert 1e-12 < found.busy.operations["add f32"] < 1e-8
    assert found.busy.operations["exponential f32"] > found.busy.operations["add f32"]
