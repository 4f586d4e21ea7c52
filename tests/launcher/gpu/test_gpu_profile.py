"""Profiles of programs on an emulated GPU: every step is counted, and lies within the step's time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardc
from shardc import Mesh, P, Program, ShapeDtype
from shardc.hlo.text.reader import read_hlo
from shardc.launcher.gpu.driver import GpuDriver
from tests.launcher.gpu.gpu_driving import WHILE
from tests.launcher.gpu.test_gpu_flow import FFT
from tests.launcher.gpu.test_gpu_flow import X as START

RNG = np.random.default_rng(0)


def product() -> Program:
    def step(w: Any, x: Any) -> Any:
        return ((x @ w) * 2).sum(axis=0)

    specs = ShapeDtype((64, 32), "float32"), ShapeDtype((16, 64), "float32")
    return shardc.trace(step, *specs, mesh=Mesh({"d": 4}), in_shardings=(P("d"), P(None, "d")))


def test_kernels_and_collectives_of_all_devices() -> None:
    compiled = product().compile("cuda-emulated")
    w, x = (RNG.standard_normal(s).astype(np.float32) for s in ((64, 32), (16, 64)))
    profile = compiled.profile(w, x, steps=3)
    kinds = {row.site.kind: row for row in profile.rows}
    assert {"kernel", "collective"} <= set(kinds)
    assert all(row.seconds > 0 for row in profile.rows)
    assert set(profile.events) == {0, 1, 2, 3}
    for events in profile.events.values():
        assert len(events) == sum(row.calls for row in profile.rows)
        assert (events[:, 2] >= events[:, 1]).all()
        assert (np.diff(events[:, 1]) >= 0).all(), "a device does one after the other"
    assert "all-reduce" in str(profile) or "reduce-scatter" in str(profile)
    np.testing.assert_allclose(np.asarray(compiled(w, x)), ((x @ w) * 2).sum(axis=0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("start", "calls"), [("start = s32[] copy(n)", 5), ("start = s32[] constant(40)", 40)])
def test_loops_count_their_turns(start: str, calls: int) -> None:
    compiled = Program(read_hlo(WHILE.replace("START", start))).compile("cuda-emulated")
    profile = compiled.profile(np.int32(5), START, steps=1)
    tanh = [row for row in profile.rows if "tanh" in row.site.holds]
    assert sum(row.calls for row in tanh) == calls


def test_steps_of_the_host() -> None:
    compiled = Program(read_hlo(FFT)).compile("cuda-emulated")
    profile = compiled.profile(RNG.standard_normal((4, 64)).astype(np.float32), steps=1)
    assert any("fft" in row.site.holds for row in profile.rows)


def test_what_is_not_profiled_is_not_timed() -> None:
    driver = product().compile("cuda-emulated").driver
    assert isinstance(driver, GpuDriver)
    driver.clear_records()
    assert driver.records() == {}
