"""Programs of a job over some of its processes: the bits of virtual devices, whatever connects the processes."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest
from plugin_jobs import SECONDS, free_port, mpiexec, start

pytest.importorskip("jax")

SCRIPT = str(Path(__file__).parent / "groups_program.py")
PROCESSES, DEVICES = 3, 2
PARTS = "groups,orders,threads"


def seen(outputs: list[str]) -> list[dict[str, str]]:
    """What each process saw."""
    return [json.loads(line[line.index("{") :]) for out in outputs for line in out.splitlines() if "{" in line]


def run_job(how: str, folder: Path) -> list[dict[str, str]]:
    if how == "jax.distributed":
        port = str(free_port())
        lines = [[SCRIPT, PARTS, port, str(PROCESSES), str(n)] for n in range(PROCESSES)]
    else:
        lines = [mpiexec(PROCESSES, SCRIPT, PARTS)]
    more = {"SHARDC_SHARED_MEMORY": "0"} if how == "messages" else {}
    started = [start(line, folder, DEVICES, **more) for line in lines]
    told = [p.communicate(timeout=SECONDS) for p in started]
    assert [p.returncode for p in started] == [0] * len(told), "\n".join(out + err for out, err in told)
    return seen([out for out, _ in told])


@cache
def seen_alone(folder: Path) -> dict[str, str]:
    process = start([SCRIPT, PARTS], folder, PROCESSES * DEVICES)
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, out + err
    return seen([out])[0]


@pytest.mark.parametrize(
    "how",
    ["jax.distributed", pytest.param("mpi", marks=pytest.mark.full), pytest.param("messages", marks=pytest.mark.full)],
)
def test_groups_have_the_bits_of_virtual_devices(
    how: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Some, one or all processes run a program, in an order that only those who meet agree on; threads compile."""
    if how != "jax.distributed":
        pytest.importorskip("mpi4py")
    found = run_job(how, tmp_path)
    assert len(found) == PROCESSES
    alone = seen_alone(tmp_path_factory.getbasetemp())
    assert {name for each in found for name in each} == set(alone)
    assert [(name, value) for each in found for name, value in each.items() if value != alone[name]] == []


def test_the_verdict_names_ranks_of_the_job(tmp_path: Path) -> None:
    """Rank 2, which is the second process of its program."""
    pytest.importorskip("mpi4py")
    job = start(mpiexec(PROCESSES, SCRIPT, "missing"), tmp_path, 1, SHARDC_TIMEOUT="3")
    out, err = job.communicate(timeout=SECONDS)
    assert job.returncode == 1, out + err
    said = r"rank 2 \(pid \d+ on .*\) did not reach all-reduce .*group 0,1 \(after 3 s\)"
    assert re.search(said, err), out + err
    assert re.search(r"rank 0 \(pid \d+ on .*\): it waits in all-reduce", err), out + err
    assert "fix: find out what delays that rank" in err
