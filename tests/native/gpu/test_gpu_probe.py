"""What a process finds of GPUs when it looks for the first time: every reason why there is none has its words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROBE = """
from shardc.native.gpu.cuda.probe import probe_cuda
found = probe_cuda()
assert found.driver is None and not found.devices
print(found.problem, "|", found.fix)
"""


def probe(program: str = "", **environment: str) -> str:
    """What the probe of a fresh process says, behind the lines of ``program``."""
    done = subprocess.run(
        [sys.executable, "-c", program + PROBE],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_without_cuda_python() -> None:
    hidden = "import sys\nsys.modules['cuda'] = None\n"
    hidden += "import importlib.util as u\nfind = u.find_spec\n"
    hidden += "u.find_spec = lambda name, *rest: None if name.startswith('cuda') else find(name, *rest)\n"
    assert probe(hidden) == "cuda-python is not installed | pip install 'shardc[cuda]'"


def test_without_a_driver() -> None:
    pytest.importorskip("cuda.bindings.driver")
    if _has_driver():
        pytest.skip("there is a driver")
    problem, fix = probe().split(" | ")
    assert problem == "no NVIDIA driver is installed (its library libcuda was not found)"
    assert fix == "install NVIDIA's driver, or run where there is a GPU"


def test_without_a_driver_and_before_cuda_python_had_a_pathfinder() -> None:
    pytest.importorskip("cuda.bindings.driver")
    if _has_driver():
        pytest.skip("there is a driver")
    hidden = "import shardc.native.gpu.cuda.probe as p\nfind = p.find_spec\n"
    hidden += "p.find_spec = lambda name: None if name == 'cuda.pathfinder' else find(name)\n"
    assert probe(hidden).startswith("no NVIDIA driver is installed: libcuda.so.1: cannot open")


def test_a_driver_that_does_not_load(tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings.driver")
    (tmp_path / "libcuda.so.1").write_bytes(b"this is no library")
    assert "driver" in probe(LD_LIBRARY_PATH=str(tmp_path))


def test_looking_again_is_free() -> None:
    from shardc.native.gpu.cuda.probe import probe_cuda

    assert probe_cuda() is probe_cuda()


def _has_driver() -> bool:
    from shardc.native.gpu.cuda.probe import probe_cuda

    return probe_cuda().driver is not None
