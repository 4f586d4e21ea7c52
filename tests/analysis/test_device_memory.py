"""One number says what a program needs of a device's memory, whoever is asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardc
import shardc.testing

Array = np.ndarray[Any, Any]
MACHINES = ("h100-dgx", "tpu-v5e", "host")


def _fused(x: Array) -> Array:
    """Much that is never in memory: an estimate before fusion is far too high."""
    return (np.tanh(x) * np.sin(x) + np.exp(-x * x)).sum(1)


def _gathered(x: Array) -> Array:
    return x @ x.T


def _loop(x: Array) -> Array:
    for _ in range(20):
        x = np.tanh(x @ x)
    return x


PROGRAMS: dict[str, Callable[[Array], Array]] = {"fused": _fused, "gathered": _gathered, "loop": _loop}


def traced(name: str) -> shardc.Program:
    return shardc.trace(PROGRAMS[name], np.zeros((256, 256)), mesh=shardc.Mesh({"x": 4}), in_shardings=shardc.P("x"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_compiled_is_what_is_reported(name: str, tmp_path: Path) -> None:
    partitioned = traced(name).partition()
    report, compiled = partitioned.report(), partitioned.compile()
    peak = compiled.memory_analysis()["peak_bytes"]
    assert (report["peak_bytes"], report["peak_bytes_estimated"]) == (peak, False)
    assert report["memory"] == partitioned.memory_analysis() == compiled.memory_analysis()
    assert partitioned.explanation().totals.peak_bytes == peak
    timeline = partitioned.memory_timeline()
    assert timeline.fixed_bytes + timeline.written_bytes == peak
    budget = {"limits": {"peak_bytes": peak}}
    assert shardc.testing.assert_budget(partitioned, budget, remedies=0).totals["peak_bytes"] == peak
    json.dumps(report, allow_nan=False)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_described_machine_counts_where_one_is_named(name: str, machine: str) -> None:
    partitioned = traced(name).partition(machine=machine)
    peak = partitioned.simulate().peak_bytes
    assert partitioned.report()["peak_bytes"] == partitioned.memory_analysis()["peak_bytes"] == peak
    assert partitioned.explanation(machine=machine).totals.peak_bytes == peak


def test_parts_add_up_to_the_peak() -> None:
    memory = traced("gathered").partition().report()["memory"]
    parts = [memory[f"{part}_bytes"] for part in ("argument", "result", "temporary", "communication")]
    assert memory["peak_bytes"] == sum(parts) - memory["aliased_bytes"]


def test_what_cannot_be_lowered_has_an_estimate() -> None:
    """No slice of that machine has seven devices."""
    given = shardc.trace(_gathered, np.zeros((7, 7)), mesh=shardc.Mesh({"x": 7}), in_shardings=shardc.P("x"))
    made = given.partition(plan="propagated")
    program = made.program.scheduled(machine="tpu-v4")
    partitioned = replace(made, propagated=replace(made.propagated, program=program))
    report = partitioned.report()
    assert report["peak_bytes_estimated"] and report["peak_bytes"] > 0 and report["memory"] is None
