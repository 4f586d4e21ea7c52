"""Rank 0 compiles, the others take what it made."""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from shardc.compiler.emit.cpu_executable import build_executable
from shardc.compiler.executable import Executable
from shardc.compiler.load.step import run_single
from shardc.hlo.config import Config
from shardc.hlo.errors import ShardcError, UnsupportedError
from shardc.launcher.driver import executables
from shardc.launcher.driver.executables import ProgramCompilation, share_executable
from shardc.native.llvm import target as targets
from shardc.native.llvm.target import Target, common_target, host_target, named_target
from tests.compiler.checking import program
from tests.launcher.test_job import mpiexec

RANKS = 3


class Meeting:
    """Transports of threads that play ranks; what they exchange is pickled, as MPI's is."""

    def __init__(self) -> None:
        self._said: list[Any] = [None] * RANKS
        self._barrier = threading.Barrier(RANKS, timeout=60)

    def rank(self, number: int) -> Any:
        meeting = self

        class Rank:
            process_index, process_count = number, RANKS

            def exchange_objects(
                self, value: Any, *, doing: str = "an exchange", timeout_factor: float = 1.0
            ) -> list[Any]:
                meeting._said[number] = pickle.dumps(value)
                meeting._barrier.wait()
                heard = [pickle.loads(s) for s in meeting._said]
                meeting._barrier.wait()
                return heard

        return Rank()


def compiled(rank: int, machine: Target | None) -> Executable:
    module = program("x = f32[4] parameter(0)\nROOT r = f32[4] add(x, x)")
    return build_executable(module, Config(), machine or host_target())


def meet(
    monkeypatch: pytest.MonkeyPatch,
    keys: str = "aaa",
    hosts: Mapping[int, Target] = MappingProxyType({}),
    build: Callable[[int, Target | None], Executable] = compiled,
) -> tuple[list[Any], list[tuple[int, Target | None]]]:
    """What each rank gets, and which built, for which machine."""
    meeting, built = Meeting(), []
    local = threading.local()
    monkeypatch.setattr(targets, "host_target", lambda: hosts.get(getattr(local, "rank", -1), host_target()))

    def one(rank: int) -> Any:
        local.rank = rank

        def make(machine: Target | None) -> Any:
            built.append((rank, machine))
            return build(rank, machine), {"compile": 1.0}

        try:
            return share_executable(ProgramCompilation(lambda: keys[rank], make), meeting.rank(rank))[0]
        except ShardcError as e:
            return e

    with ThreadPoolExecutor(RANKS) as pool:
        return list(pool.map(one, range(RANKS))), sorted(built, key=lambda b: b[0])


def test_one_compiles_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    got, built = meet(monkeypatch)
    assert built == [(0, None)]
    assert got[1] == got[2]
    assert got[1].objects == got[0].objects
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(run_single(got[2], [x])[0], 2 * x)


def test_other_programs_are_compiled_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    got, built = meet(monkeypatch, "aba")
    assert built == [(0, None), (1, None)]
    assert all(isinstance(g, Executable) for g in got)


def test_other_kinds_of_processors_compile_for_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    got, built = meet(monkeypatch, hosts={2: replace(host_target(), triple="riscv64-unknown-linux-gnu")})
    assert built == [(0, None), (2, None)]
    assert got[1].objects == got[0].objects


def test_unlike_cpus_run_the_same_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = {rank: named_target(f"x86-64-v{4 - rank}", "linux") for rank in range(RANKS)}
    got, built = meet(monkeypatch, hosts=hosts)
    ((rank, machine),) = built
    assert rank == 0
    assert machine is not None
    assert machine == common_target(list(hosts.values()))
    assert "+sse4.2" in machine.features
    assert "-avx2" in machine.features
    assert {g.features for g in got} == {machine.features}


def test_errors_reach_all_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(rank: int, machine: Target | None) -> Executable:
        raise UnsupportedError("no code for it", where="step.py:3", fix="do without")

    got, built = meet(monkeypatch, build=fails)
    assert built == [(0, None)]
    assert [type(e) for e in got] == [UnsupportedError] * RANKS
    assert {str(e) for e in got} == {str(got[0])}
    assert "where: step.py:3" in str(got[2])


def test_error_of_one_with_another_program_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails_on_one(rank: int, machine: Target | None) -> Executable:
        if rank == 1:
            raise UnsupportedError("no code for it")
        return compiled(rank, machine)

    got, _ = meet(monkeypatch, "aba", build=fails_on_one)
    assert isinstance(got[1], UnsupportedError)
    assert got[2].objects == got[0].objects


def test_common_targets() -> None:
    host = host_target()
    assert common_target([host, host]) is host
    new, old = named_target("x86-64-v4", "linux"), named_target("x86-64-v2", "linux")
    both = common_target([new, old])
    assert both == common_target([old, new])
    assert both is not None
    assert both.cpu == "x86-64"
    assert both.vector_bits == 128
    assert {f for f in both.features.split(",") if f[0] == "+"} == set(old.features.split(","))
    assert common_target([new, named_target("aarch64", "linux")]) is None
    assert executables.COMPILE_WAIT > 1


WORKER = """
import os, sys
from shardc.launcher.jobs.mpi_environment import detect_launcher
rank = detect_launcher().rank
os.environ["SHARDC_CACHE_DIR"] = os.path.join(sys.argv[1], str(rank))
import jax.numpy as jnp, numpy as np, shardc
from shardc.frontends.jax import frontend as jax_frontend
def step(x, w):
    return jnp.tanh(x @ w)
if rank:
    def refused(lowering): raise AssertionError("read on another rank")
    jax_frontend.JaxLowering.read = refused
if "--unknown" in sys.argv:
    import jax
    def step(x, w): return jax.ffi.ffi_call("nobody_knows", x)(x) @ w
jitted = shardc.jit(step, mesh=shardc.Mesh({"d": shardc.process_count()}), in_shardings=(shardc.P("d"), None))
x, w = np.ones((6, 3), np.float32), np.ones((3, 5), np.float32)
for _ in range(2):
    y = shardc.gather(jitted(x, w))
assert np.allclose(y, np.tanh(x @ w))
if rank == 0:
    print("done", sorted(jitted.compiled(x, w).seconds))
"""


@pytest.fixture
def worker(tmp_path: Path) -> tuple[str, ...]:
    pytest.importorskip("jax")
    file = tmp_path / "worker.py"
    file.write_text(WORKER)
    return sys.executable, str(file), str(tmp_path)


@pytest.mark.mpi
def test_job_without_a_common_cache(worker: tuple[str, ...], repository: Path) -> None:
    done = mpiexec(2, *worker, cwd=repository)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done ['compile', 'partition', 'propagate', 'read']\n"


@pytest.mark.mpi
@pytest.mark.full
def test_what_cannot_be_compiled_is_told_once(worker: tuple[str, ...], repository: Path) -> None:
    failed = mpiexec(3, *worker, "--unknown", cwd=repository)
    assert failed.returncode == 2, failed.stderr
    assert failed.stderr.count("error:") == 1, failed.stderr
