"""``shardc run`` and ``bench`` with ``--device``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardc.cli.commands.run import execute
from shardc.cli.view import View
from shardc.hlo.errors import UnsupportedError
from shardc.launcher.run.task import RunTask
from tests.cli.programs import MLP


def told(capsys: pytest.CaptureFixture[str], path: Path, task: RunTask, device: str) -> dict[str, Any]:
    execute(View(json=True), (path, "", None, None), task, 0, device)
    outcome: dict[str, Any] = json.loads(capsys.readouterr().out)
    return outcome


def test_run_writes_what_the_cpu_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mlp.hlo"
    path.write_text(MLP)
    found = []
    for device in ("cpu", "cuda-emulated"):
        outputs = tmp_path / f"{device}.npz"
        outcome = told(capsys, path, RunTask(outputs=str(outputs)), device)
        assert outcome["devices"] == 4
        with np.load(outputs) as arrays:
            found.append([arrays[name] for name in arrays.files if arrays[name].dtype.kind == "f"])
    assert found[0]
    for cpu, gpu in zip(*found, strict=True):
        np.testing.assert_allclose(gpu, cpu, rtol=1e-5, atol=1e-5)


def test_bench_counts_steps_and_collectives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mlp.hlo"
    path.write_text(MLP)
    outcome = told(capsys, path, RunTask(steps=2, warmup=1), "cuda-emulated")
    assert outcome["steps"] == 2
    assert outcome["step_seconds"] > 0
    assert outcome["collectives_per_step"] == told(capsys, path, RunTask(steps=1), "cpu")["collectives_per_step"] > 0
    profiled = told(capsys, path, RunTask(steps=1, warmup=0, profile=True), "cuda-emulated")
    assert profiled["profile"]["summary"]


def test_a_device_that_there_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mlp.hlo"
    path.write_text(MLP)
    with pytest.raises(UnsupportedError, match="unknown compile target 'tpu'"):
        told(capsys, path, RunTask(), "tpu")
