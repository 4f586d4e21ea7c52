"""What people do with the service: they start it, ask it from another terminal, and run jobs of ranks that ask it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import shardc
from shardc.cli.app import main
from tests.service.service_harness import ROOT, TOKEN, Service
from tests.service.service_programs import small

MLP = ROOT / "examples" / "hlo_annotated" / "mlp.hlo"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("users"), workers=2) as service:
        yield service


def asking(service: Service, folder: Path, **more: str) -> Mapping[str, str]:
    """The environment of another terminal, with an empty cache of its own."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SHARDC_")}
    settings = {"SHARDC_SERVER": service.url, "SHARDC_TOKEN": TOKEN, "SHARDC_CACHE_DIR": str(folder / "cache")}
    return {**clean, "PYTHONPATH": str(ROOT), **settings, **more}


def run(words: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env=dict(environment), timeout=300, check=False
    )


def compiled(service: Service) -> int:
    """How many executables its workers have made."""
    with service.caller() as caller:
        return int(sum(v for k, v in caller.figures().items() if k.startswith('shardc_makings_total{kind="compile"')))


def here(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit code, output and log of a command without the service."""
    code = main(words)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_second_terminal(service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`shardc partition` prints the same with and without the service, and makes nothing itself with it."""
    command = ["partition", str(MLP)]
    asked = run(["-m", "shardc", *command], asking(service, tmp_path))
    assert (asked.returncode, asked.stdout, asked.stderr) == here(command, capsys)
    with service.caller() as caller:
        assert caller.figure("shardc_makings_total") >= 1


def test_mistakes_look_as_they_do_without_a_service(
    service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "wrong.hlo"
    wrong.write_text(small(1).replace("dot(x, w)", "dot(x, nothing)"), encoding="utf-8")
    command = ["partition", str(wrong)]
    asked = run(["-m", "shardc", *command], asking(service, tmp_path))
    local = here(command, capsys)
    assert local[0] == 2
    assert (asked.returncode, asked.stdout, asked.stderr) == local


def test_the_example(service: Service, tmp_path: Path) -> None:
    script = str(ROOT / "examples" / "service" / "client.py")
    before = compiled(service)
    done = run([script], asking(service, tmp_path))
    assert done.returncode == 0, done.stderr
    assert "largest difference" in done.stdout
    assert compiled(service) - before == 1


RANKS = """
import hashlib
import numpy as np
import shardc
from shardc import Mesh, P, ShapeDtype

def step(x, w):
    return np.tanh(x @ w).sum(axis=0)

mesh = Mesh({"data": 4})
x, w = ShapeDtype((16, 24), "float32", P("data")), ShapeDtype((24, 8), "float32")
compiled = shardc.trace(step, x, w, mesh=mesh).propagate().partition().compile()
rng = np.random.default_rng(0)
a, b = rng.standard_normal((16, 24), "float32"), rng.standard_normal((24, 8), "float32")
out = np.asarray(shardc.gather(compiled(a, b)))
if shardc.process_index() == 0:
    print("ranks", shardc.process_count(), "sum", hashlib.sha256(out.tobytes()).hexdigest())
"""


def four_ranks(folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    script = folder / "ranks.py"
    script.write_text(RANKS, encoding="utf-8")
    done = run(["-m", "shardc", "mpiexec", "-n", "4", sys.executable, str(script)], environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ranks 4 sum"), done.stdout
    return done


@pytest.mark.mpi
def test_ranks_load_what_was_compiled_once(service: Service, tmp_path: Path) -> None:
    """Four ranks with an empty cache: one executable is made, and by the service."""
    before = compiled(service)
    asked = four_ranks(tmp_path, asking(service, tmp_path / "asked"))
    assert compiled(service) - before == 1
    assert asked.stderr == ""


@pytest.mark.mpi
@pytest.mark.full
def test_ranks_compute_the_same_bits_with_and_without_the_service(service: Service, tmp_path: Path) -> None:
    """A second job, elsewhere, makes nothing new; without the service one line of one rank says so."""
    asked = four_ranks(tmp_path, asking(service, tmp_path / "asked"))
    before = compiled(service)
    assert four_ranks(tmp_path, asking(service, tmp_path / "again")).stdout == asked.stdout
    assert compiled(service) == before
    away = four_ranks(tmp_path, asking(service, tmp_path / "away", SHARDC_SERVER="http://127.0.0.1:1"))
    assert away.stdout == asked.stdout
    assert away.stderr.count("http://127.0.0.1:1") == len(away.stderr.splitlines()) == 1, away.stderr


def test_a_fresh_service_with_nothing_but_a_store(tmp_path: Path) -> None:
    """Without a token file it makes a token, shows it once, and the next start has the same one."""
    words = [sys.executable, "-m", "shardc", "serve", "--json", "--port", "0", "--workers", "1"]
    words += ["--store", str(tmp_path / "store"), "--token-file", str(tmp_path / "tokens")]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SHARDC_")}
    settings = {**clean, "PYTHONPATH": str(ROOT), "SHARDC_CACHE_DIR": str(tmp_path / "cache")}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=settings) as server:
        assert server.stdout is not None
        try:
            url = json.loads(server.stdout.readline())["url"]
        finally:
            server.terminate()
            _, said = server.communicate(timeout=60)
    assert server.returncode == 0, said
    assert f"serving on {url}" in said
    assert "token" in said
    kept = (tmp_path / "tokens").read_text(encoding="utf-8")
    assert "sha256:" in kept
    shown = [word.strip("'\"`.,:;()") for word in said.split()]
    assert not any(word in kept for word in shown if len(word) >= 32)


def test_an_executable_from_elsewhere_is_not_loaded(service: Service, tmp_path: Path) -> None:
    """A client that knows another key than the server's does not believe what it gets."""
    path = tmp_path / "small.hlo"
    path.write_text(small(5), encoding="utf-8")
    with (
        shardc.connect(service.url, token=TOKEN, key="00" * 32) as client,
        pytest.raises(shardc.ShardcError, match="sign"),
    ):
        client.compile(shardc.load(path))
