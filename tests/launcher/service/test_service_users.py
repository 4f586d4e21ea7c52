"""What people do with the service: they start it, ask it from another terminal, and run jobs of ranks that ask it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from service_harness import ROOT, TOKEN, Service
from service_programs import small

import shardc

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


def without_seconds(text: str) -> object:
    found = json.loads(text)
    found.pop("seconds", None)
    return found


def test_a_second_terminal(service: Service, tmp_path: Path) -> None:
    """`shardc partition` prints the same with and without the service, and makes nothing itself with it."""
    there = asking(service, tmp_path)
    here = {k: v for k, v in there.items() if k not in ("SHARDC_SERVER", "SHARDC_TOKEN")}
    command = ["-m", "shardc", "partition", str(MLP)]
    asked, local = run(command, there), run(command, here)
    assert (asked.returncode, asked.stdout) == (local.returncode, local.stdout), asked.stderr
    asked, local = run([*command, "--json"], there), run([*command, "--json"], here)
    assert without_seconds(asked.stdout) == without_seconds(local.stdout)
    with service.caller() as caller:
        assert caller.figure("shardc_makings_total") >= 1


def test_mistakes_look_as_they_do_without_a_service(service: Service, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.hlo"
    wrong.write_text(small(1).replace("dot(x, w)", "dot(x, nothing)"), encoding="utf-8")
    there = asking(service, tmp_path)
    here = {k: v for k, v in there.items() if k not in ("SHARDC_SERVER", "SHARDC_TOKEN")}
    command = ["-m", "shardc", "partition", str(wrong)]
    asked, local = run(command, there), run(command, here)
    assert local.returncode == 2
    assert (asked.returncode, asked.stdout, asked.stderr) == (local.returncode, local.stdout, local.stderr)


def test_the_example(service: Service, tmp_path: Path) -> None:
    script = str(ROOT / "examples" / "service" / "client.py")
    before = compiled(service)
    for _ in range(2):
        done = run([script], asking(service, tmp_path / str(_)))
        assert done.returncode == 0, done.stderr
        assert "largest difference" in done.stdout
    assert compiled(service) - before == 1
    assert run([script], {**asking(service, tmp_path), "SHARDC_SERVER": ""}).returncode != 0


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


@pytest.mark.mpi
def test_ranks_load_what_was_compiled_once(service: Service, tmp_path: Path) -> None:
    """Four ranks, empty caches: one executable is made, by the service, and the results are the same bits as alone."""
    script = tmp_path / "ranks.py"
    script.write_text(RANKS, encoding="utf-8")
    job = ["-m", "shardc", "mpiexec", "-n", "4", sys.executable, str(script)]
    before = compiled(service)
    asked = run(job, asking(service, tmp_path / "asked"))
    assert asked.returncode == 0, asked.stderr
    assert asked.stdout.startswith("ranks 4 sum"), asked.stdout
    assert compiled(service) - before == 1
    assert "compiles here" not in asked.stderr
    again = run(job, asking(service, tmp_path / "again"))
    assert (again.returncode, again.stdout) == (0, asked.stdout), again.stderr
    assert compiled(service) - before == 1
    away = asking(service, tmp_path / "away", SHARDC_SERVER="http://127.0.0.1:1")
    local = run(job, away)
    assert (local.returncode, local.stdout) == (0, asked.stdout), local.stderr
    assert local.stderr.lower().count("http://127.0.0.1:1") == 1, local.stderr


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
    client = shardc.connect(service.url, token=TOKEN, key="00" * 32)
    with pytest.raises(shardc.ShardcError, match="sign"):
        client.compile(shardc.load(path))
