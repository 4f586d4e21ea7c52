"""``run`` and ``bench`` on MPI ranks: the same bits as on virtual devices, one voice, bounded failures."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.programs import MLP, PLAIN

pytestmark = pytest.mark.mpi

#: Tracks of traces from here on are a rank's communication, those before its devices.
COMMUNICATION = 2000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mlp.hlo").write_text(MLP)
    (tmp_path / "plain.hlo").write_text(PLAIN)
    return tmp_path


def shardc(folder: Path, *arguments: str, launcher: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    line = [*launcher, sys.executable, "-m", "shardc", *arguments]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def mpirun(ranks: int) -> tuple[str, ...]:
    from shardc.launcher.jobs.mpi_environment import find_library
    from shardc.launcher.jobs.mpiexec import find_mpiexec

    library = find_library()
    assert library is not None
    return (str(find_mpiexec(library)), "-n", str(ranks))


def outcome(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("ranks", [3, *(pytest.param(n, marks=pytest.mark.full) for n in (2, 4))])
def test_ranks_and_virtual_devices_give_the_same_bits(folder: Path, ranks: int) -> None:
    here = outcome(shardc(folder, "run", "mlp.hlo", "--json", "--seed", "5"))
    there = outcome(shardc(folder, "run", "mlp.hlo", "--json", "--seed", "5", "--ranks", str(ranks)))
    assert (there["devices"], there["ranks"]) == (4, ranks)
    assert there["results"] == here["results"]


def test_ranks_that_were_started_already_give_the_same_bits(folder: Path) -> None:
    here = outcome(shardc(folder, "run", "mlp.hlo", "--json", "--seed", "5"))
    joined = outcome(shardc(folder, "run", "mlp.hlo", "--json", "--seed", "5", launcher=mpirun(4)))
    assert joined["ranks"] == 4
    assert joined["results"] == here["results"]


def test_ranks_on_named_hosts(folder: Path) -> None:
    here = outcome(shardc(folder, "run", "mlp.hlo", "--json"))
    (folder / "hosts").write_text("localhost slots=4\n")
    options = ("--ranks", "2", "--hostfile", "hosts", "--bind", "none", "--prefix")
    done = shardc(folder, "run", "mlp.hlo", "--json", *options)
    lines = done.stdout.splitlines()
    assert all(line.startswith("[0] ") for line in lines), done.stderr
    assert json.loads("\n".join(line[4:] for line in lines))["results"] == here["results"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--hosts", "a:1"), "2 ranks need more than the 1 slots of a:1"),
        (("--hosts", "a b"), "'a b' is not a host"),
        (("--hosts", "a", "--hostfile", "b"), "--hosts and --hostfile exclude each other"),
        (("--hostfile", "none"), "there is no hostfile none"),
        (("--bind", "socket"), "use one of auto, none, core, numa"),
    ],
)
def test_hosts_that_cannot_be(folder: Path, options: tuple[str, ...], message: str) -> None:
    done = shardc(folder, "mpiexec", "-n", "2", *options, "true")
    assert done.returncode == 2
    assert message in done.stderr


GROUPS = "replica_groups={{0,1}}, use_global_device_ids=true, to_apply=sum"
PAIRS = f"""HloModule pairs, num_partitions=2

sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

ENTRY main {{
  x = f32[256,256] parameter(0), sharding={{replicated}}
  d = u32[] partition-id()
  f = f32[] convert(d)
  g = f32[256,256] broadcast(f), dimensions={{}}
  y = f32[256,256] add(x, g)
  s = f32[256,256] all-reduce-start(y), channel_id=1, {GROUPS}
  p = f32[256,256] dot(y, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  t = f32[256,256] tanh(p)
  r = f32[256,256] all-reduce-done(s)
  e = f32[256,256] collective-permute(t), channel_id=2, source_target_pairs={{{{0,1}},{{1,0}}}}
  q = f32[256,256] dot(t, r), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  h = f32[128,256] reduce-scatter(q), channel_id=3, dimensions={{0}}, {GROUPS}
  k = f32[256,256] dot(e, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT o = (f32[256,256], f32[256,256], f32[128,256]) tuple(r, k, h)
}}
"""


def test_transfers_beside_computing_give_the_same_bits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pairs.hlo").write_text(PAIRS)
    monkeypatch.setenv("SHARDC_OVERLAP_MEMORY", "4")
    plain = outcome(shardc(folder, "run", "pairs.hlo", "--json", "--overlap", "never"))
    overlapped = [outcome(shardc(folder, "run", "pairs.hlo", "--json", "--overlap", "always"))]
    for thread in ("0", "1"):
        monkeypatch.setenv("SHARDC_TRANSFER_THREAD", thread)
        overlapped.append(outcome(shardc(folder, "run", "pairs.hlo", "--json", "--overlap", "always", "--ranks", "2")))
    assert [o["results"] for o in overlapped] == [plain["results"]] * 3
    few = ("--steps", "2", "--warmup", "0")
    timed = outcome(shardc(folder, "bench", "pairs.hlo", "--json", "--overlap", "always", "--ranks", "2", *few))
    rows = timed["communication"]["collectives"]
    assert any(r["asynchronous"] for r in rows)
    assert all(r["hidden"] >= 0 and 0 < r["exposed"] <= r["slowest"] for r in rows)


def test_files(folder: Path) -> None:
    x = np.random.default_rng(0).standard_normal((7, 5)).astype(np.float32)
    np.savez(folder / "in.npz", in0=x, in1=np.arange(7, dtype=np.int32))
    layout = ("--mesh", "a=2,b=2", "--annotate", "x=a,b", "--annotate", "n=b")
    files = ("--inputs", "in.npz", "--outputs", "out.npz")
    done = shardc(folder, "run", "plain.hlo", *layout, *files, "--ranks", "4")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("plain: 4 devices on 4 ranks\n")
    with np.load(folder / "out.npz") as file:
        np.testing.assert_allclose(file["out0"], np.exp(x), rtol=1e-6)
        assert file["out1"].tolist() == list(range(1, 8))


def test_bench(folder: Path) -> None:
    facts = outcome(shardc(folder, "bench", "mlp.hlo", "--ranks", "2", "--steps", "3", "--json"))
    assert (facts["ranks"], facts["steps"]) == (2, 3)


def test_bench_profile(folder: Path) -> None:
    files = ("--trace", "t.json")
    facts = outcome(shardc(folder, "bench", "mlp.hlo", "--ranks", "2", "--steps", "2", "--json", *files))
    assert any(k["kind"] == "collective" for k in facts["profile"]["kernels"])
    events = json.loads((folder / "t.json").read_text())["traceEvents"]
    tracks = {(e["pid"], e["tid"]) for e in events}
    assert {(pid, tid) for pid, tid in tracks if tid < COMMUNICATION} == {(0, 0), (0, 1), (1, 2), (1, 3)}
    assert {pid for pid, tid in tracks if tid >= COMMUNICATION} == {0, 1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "mlp.hlo", "--ranks", "4"), "error: --ranks 4 cannot start a job inside"),
        (("run", "nothing.hlo"), "error: there is no file nothing.hlo"),
        (("run", "mlp.hlo", "--inputs", "in.npz"), "error: in.npz lacks in0 (x)"),
        (("run", "mlp.hlo", "--devices-per-rank", "1", "--mesh", "a=4,b=2"), "error: "),
        (("run",), "error: Missing"),
    ],
)
def test_errors_in_a_job_are_told_once(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    np.savez(folder / "in.npz", other=np.zeros(3))
    done = shardc(folder, *arguments, "--outputs", "o.npz", launcher=mpirun(2))
    assert done.returncode == 2, done.stderr
    assert done.stderr.replace(str(folder) + "/", "").count(message) == 1, done.stderr
    assert not (folder / "o.npz").exists()


def test_an_interrupted_job_leaves_nothing_behind(folder: Path) -> None:
    line = [sys.executable, "-m", "shardc", "mpiexec", "-n", "2", sys.executable, "-c"]
    code = "import os, time; open(f'{os.getpid()}.pid', 'w').close(); time.sleep(900)"
    process = subprocess.Popen([*line, code], cwd=folder, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 240
    while len(pids := [int(p.stem) for p in folder.glob("*.pid")]) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(240) == 130
    while any(_alive(p) for p in pids):
        assert time.monotonic() < deadline + 240
        time.sleep(0.05)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
