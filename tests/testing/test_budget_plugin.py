"""`shardc.testing`: assertions on files and functions, and the plug-in in a pytest of its own."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import shardc
from shardc import Mesh, P
from shardc.testing import BudgetExceededError, assert_budget
from tests.cli.programs import MLP

_TEST = """
import shardc

def test_step(shardc_budget):
    shardc_budget("mlp.hlo")

def test_two(shardc_budget):
    program = shardc.load("mlp.hlo")
    shardc_budget(program, name="plain")
    shardc_budget(program, name="forbidden", budget={"forbid": [{"op": "all-gather"}]})
"""


@pytest.fixture
def mlp(tmp_path: Path) -> Path:
    path = tmp_path / "mlp.hlo"
    path.write_text(MLP)
    return path


def test_files_and_stages(mlp: Path) -> None:
    within = {"forbid": [{"op": "all-gather"}]}
    program = shardc.load(mlp)
    for subject in (mlp, str(mlp), program, program.propagate(), program.partition()):
        assert assert_budget(subject, within).within
    with pytest.raises(AssertionError) as caught:
        assert_budget(mlp, {"forbid": [{"op": "all-reduce"}]}, remedies=0)
    assert isinstance(caught.value, BudgetExceededError)
    assert caught.value.checked.violations[0].line == "m.py:8"
    assert "m.py:8" in str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).checked == caught.value.checked
    with pytest.raises(shardc.ShardcError, match="an int has no budget"):
        assert_budget(3, within)


def test_functions_name_their_own_lines() -> None:
    mesh = Mesh({"d": 4})
    total = shardc.jit(lambda x: x.sum(), mesh=mesh, in_shardings=P("d"), out_shardings=P())
    x = np.ones(16, np.float32)
    assert assert_budget(total, {"limits": {"wire_bytes": 6}}, x).totals["wire_bytes"] == 6
    with pytest.raises(BudgetExceededError) as caught:
        assert_budget(total, {"limits": {"wire_bytes": 5}}, x, remedies=0)
    assert "test_budget_plugin.py:" in caught.value.checked.violations[0].line


def test_the_plugin_records_and_compares(mlp: Path) -> None:
    folder = mlp.parent
    (folder / "test_mlp.py").write_text(_TEST)

    def run(*options: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "test_mlp.py"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
        return done.returncode, done.stdout + done.stderr

    plugin = () if _is_installed() else ("-p", "shardc.testing.pytest_plugin")
    code, text = run(*plugin)
    assert code == 1, text
    assert "--update-budgets" in text
    code, text = run(*plugin, "--update-budgets")
    assert code == 0, text
    names = sorted(p.name for p in (folder / "budgets" / "test_mlp").iterdir())
    assert names == ["test_step.json", "test_two-forbidden.json", "test_two-plain.json"]
    code, text = run(*plugin)
    assert code == 0, text
    mlp.write_text(MLP.replace("f32[8,6]", "f32[16,6]").replace("f32[8,10]", "f32[16,10]"))
    code, text = run(*plugin)
    assert code == 1, text
    assert "in the baseline" in text


def _is_installed() -> bool:
    from importlib.metadata import entry_points

    return any(e.value == "shardc.testing.pytest_plugin" for e in entry_points(group="pytest11"))
