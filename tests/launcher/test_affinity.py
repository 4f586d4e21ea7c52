"""Which cores ranks are bound to, and how many threads they may use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardc.hlo.errors import EnvironmentProblem, InputError
from shardc.launcher.jobs.affinity import (
    BIND_VARIABLE,
    BINDINGS,
    Core,
    bind_rank,
    check_binding,
    cores_here,
    local_place,
    share_of,
    threads_for,
)

#: Two NUMA domains of two cores, two hardware threads each; numbers as Linux gives them.
EIGHT = [Core(n // 2, n, (n, n + 4)) for n in range(4)]


def machine(folder: Path) -> Path:
    """``EIGHT`` as /sys shows it, and a processor 8 that says nothing."""
    for number in range(9):
        place = folder / f"cpu{number}"
        place.mkdir()
        if number < 8:
            core = number % 4
            (place / f"node{core // 2}").mkdir()
            (place / "topology").mkdir()
            (place / "topology" / "thread_siblings_list").write_text(f"{core},{core + 4}\n")
    return folder


def test_cores(tmp_path: Path) -> None:
    system = machine(tmp_path)
    assert cores_here(range(8), system) == EIGHT
    assert cores_here([1, 5, 2], system) == [Core(0, 1, (1, 5)), Core(1, 2, (2,))]
    assert cores_here([8, 0], system) == [Core(0, 0, (0,)), Core(0, 8, (8,))]


def test_shares() -> None:
    assert [share_of("auto", EIGHT, r, 2) for r in range(2)] == [{0, 1, 4, 5}, {2, 3, 6, 7}]
    assert [share_of("auto", EIGHT, r, 3) for r in range(3)] == [{0, 4}, {1, 5}, {2, 3, 6, 7}]
    assert [share_of("core", EIGHT, r, 2) for r in range(2)] == [{0, 4}, {1, 5}]
    assert [share_of("numa", EIGHT, r, 3) for r in range(3)] == [{0, 1, 4, 5}, {0, 1, 4, 5}, {2, 3, 6, 7}]
    assert share_of("auto", EIGHT, 0, 5) is None
    assert share_of("none", EIGHT, 0, 1) is None
    with pytest.raises(EnvironmentProblem, match="this node has 5 ranks, but only 4 cores"):
        share_of("core", EIGHT, 0, 5)


@given(st.integers(1, 64), st.integers(1, 64))
def test_equal_shares_are_disjoint_and_cover_the_node(cores: int, ranks: int) -> None:
    all_cores = [Core(0, n, (n, n + cores)) for n in range(cores)]
    shares = [share_of("auto", all_cores, r, ranks) for r in range(ranks)]
    if ranks > cores:
        assert set(shares) == {None}
        return
    sizes = [len(s or ()) for s in shares]
    assert sum(sizes) == 2 * cores == len(frozenset().union(*(s or () for s in shares)))
    assert max(sizes) - min(sizes) <= 2


def test_threads_follow_what_is_shared() -> None:
    assert threads_for(range(8), [range(8)] * 2) == 4
    assert threads_for({0, 1}, [{0, 1}, {2, 3}]) == 2
    assert threads_for(range(8), [range(8), range(8), range(8, 16), range(8, 16)]) == 4
    assert threads_for({0, 1}, [{0, 1}] * 4) == 1
    assert threads_for({0, 1, 2}, [{0, 1, 2}, {2}]) == 2


def test_words() -> None:
    for how in BINDINGS:
        check_binding(how)
    with pytest.raises(InputError, match="use one of auto, none, core, numa"):
        check_binding("socket")


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, (1, 4)),
        ({"MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}, (0, 2)),
        ({"MPI_LOCALRANKID": "0"}, None),
        ({}, None),
    ],
)
def test_places_on_a_node(environ: dict[str, str], place: tuple[int, int] | None) -> None:
    assert local_place(environ) == place


def test_nothing_is_bound_unasked() -> None:
    before = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    assert bind_rank({"MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"}) is None
    assert bind_rank({BIND_VARIABLE: "auto"}) is None
    if before is not None:
        assert os.sched_getaffinity(0) == before


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processes are not bound on this system")
def test_a_process_is_bound() -> None:
    code = (
        "import os; from shardc.launcher.jobs.affinity import bind_rank; print(bind_rank() == os.sched_getaffinity(0))"
    )
    environ = {**os.environ, BIND_VARIABLE: "core", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
