"""SHARDC_CHECK: steps are compared with the unpartitioned program."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardc
from shardc import Compiled, Mesh, P, Program, ShapeDtype
from shardc.hlo.errors import InputError, RunError
from shardc.launcher.driver.compiled import job_config

CHECKED = replace(job_config(), check=True)
MESH = Mesh({"x": 4})


def rows(scale: float, mesh: Mesh = MESH) -> Program:
    """``(x * scale summed over rows, x's first column as integers)``, ``x`` split by rows."""

    def step(x: Any) -> Any:
        return (x * scale).sum(axis=0), x[:, 0].astype(np.int32)

    return shardc.trace(step, ShapeDtype((8, 3), "float32"), mesh=mesh, in_shardings=P("x"))


def checked(program: Program, against: Program | None = None) -> Compiled:
    """``program`` compiled, checked against another one."""
    other = against or program
    return Compiled(program.compile().executable, config=CHECKED, source=other.partition)


def test_what_agrees_runs_and_is_what_it_was() -> None:
    x = np.arange(24, dtype=np.float32).reshape(8, 3)
    total, first = checked(rows(2.0)).run([x])
    np.testing.assert_array_equal(np.asarray(total), 2 * x.sum(axis=0))
    np.testing.assert_array_equal(np.asarray(first), x[:, 0].astype(np.int32))


def test_a_difference_names_result_element_and_values() -> None:
    x = np.ones((8, 3), np.float32)
    with pytest.raises(RunError) as caught:
        checked(rows(2.0), against=rows(2.125)).run([x])
    assert "1 of 2 results" in str(caught.value)
    assert "result 0" in str(caught.value)
    assert "[0] is 16.0, not 17.0 (3 of 3 elements differ)" in str(caught.value)


def test_arguments_that_lie_on_devices_are_compared_too() -> None:
    compiled = checked(rows(2.0), against=rows(2.125))
    x = rows(2.0).compile().driver.put(0, np.ones((8, 3), np.float32))
    with pytest.raises(RunError, match="result 0"):
        compiled.run([x])


def test_donated_arguments_are_kept_for_the_comparison() -> None:
    def step(w: Any, x: Any) -> Any:
        return w + x, (w * x).sum()

    spec = ShapeDtype((8,), "float32")
    program = shardc.trace(step, spec, spec, mesh=MESH, in_shardings=P("x"), donate_argnums=0)
    compiled = checked(program)
    w = compiled.driver.put(0, np.arange(8, dtype=np.float32))
    for _ in range(3):
        w, _ = compiled.run([w, np.ones(8, np.float32)])
    np.testing.assert_array_equal(np.asarray(w), np.arange(8) + 3)


def test_bad_arguments_are_told_as_without_the_check() -> None:
    with pytest.raises(InputError, match="the parameter has"):
        checked(rows(2.0)).run([np.ones((8, 4), np.float32)])
    with pytest.raises(InputError, match="takes 1 argument, but was given 2"):
        checked(rows(2.0)).run([np.ones((8, 3), np.float32)] * 2)


def test_a_program_without_its_source_says_that_nothing_is_compared(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="shardc"):
        Compiled(rows(2.0).compile().executable, config=CHECKED).run([np.ones((8, 3), np.float32)])
    assert "cannot be compared" in caplog.text


def test_a_jitted_function_is_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The comparison runs, and sees the function's own arguments: a wrong tolerance would let nothing pass."""
    monkeypatch.setenv("SHARDC_CHECK", "1")
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))
    compared: list[int] = []

    def compare(self: Any, arguments: Any, results: Any) -> None:
        compared.append(len(arguments))

    monkeypatch.setattr("shardc.launcher.driver.checked.StepCheck.compare", compare)
    double = shardc.jit(lambda w, x: {"y": w["a"] @ x}, mesh=MESH, in_shardings=(P("x"), P()))
    double({"a": np.eye(8, dtype=np.float32)}, np.ones((8, 2), np.float32))
    assert compared == [2]
