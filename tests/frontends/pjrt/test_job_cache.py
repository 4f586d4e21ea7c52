"""JAX's cache of compilations, and serialized programs, in jobs: the second job compiles nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from plugin_jobs import SECONDS, free_port, mpiexec, start

pytest.importorskip("jax")

SCRIPT = str(Path(__file__).parent / "cached_program.py")
#: What processes compile: two programs together, and one by themselves.
TOGETHER, ALONE = 2, 1


def run_job(how: str, folder: Path, **settings: str) -> list[dict[str, Any]]:
    """What each rank tells, by rank."""
    port = str(free_port())
    lines = [mpiexec(2, SCRIPT)] if how == "mpi" else [[SCRIPT, port, "2", str(n)] for n in range(2)]
    started = [start(line, folder, 1, **settings) for line in lines]
    told = [p.communicate(timeout=SECONDS) for p in started]
    assert [p.returncode for p in started] == [0] * len(told), "\n".join(out + err for out, err in told)
    # Nothing of jaxlib's goes on watching a job that JAX has shut down.
    assert not [err for _, err in told if "failed for task" in err], told
    found = [json.loads(line[line.index("{") :]) for out, _ in told for line in out.splitlines() if "{" in line]
    return sorted(found, key=lambda f: int(f["rank"]))


@pytest.mark.parametrize("how", ["jax.distributed", pytest.param("mpi", marks=pytest.mark.full)])
def test_the_second_job_compiles_nothing(how: str, tmp_path: Path) -> None:
    if how == "mpi":
        pytest.importorskip("mpi4py")
    settings = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    first, second = (run_job(how, tmp_path, **settings) for _ in range(2))
    # One may find what the other has just written; under jax.distributed JAX has its process 0 alone write, also what
    # only the others compile.
    assert first[0]["cache_hits"] + first[0]["cache_misses"] == TOGETHER + ALONE, first
    assert sum(f["cache_misses"] for f in first) >= TOGETHER + ALONE, first
    assert all(f["cache_misses"] == 0 for f in second), second
    hits = [TOGETHER + ALONE, TOGETHER + ALONE * (how == "mpi")]
    assert [f["cache_hits"] for f in second] == hits, second
    assert {tuple(f["digests"]) for f in first + second} == {tuple(first[0]["digests"])}
    assert first[0]["digests"][2] == first[0]["digests"][3]
