"""Checkpoints of jobs: written by several ranks, read by any number, whole when ranks fail or die."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import shardc
from tests.launcher.checkpoint_worker import check, tree
from tests.launcher.test_job import mpiexec

pytestmark = pytest.mark.mpi
WORKER = (sys.executable, "-m", "tests.launcher.checkpoint_worker")


def run(ranks: int, what: str, folder: Path, repository: Path) -> str:
    done = mpiexec(ranks, *WORKER, what, str(folder), cwd=repository)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("writers", "readers"), [(4, 2), pytest.param(2, 4, marks=pytest.mark.full)])
def test_other_numbers_of_ranks_read_it(writers: int, readers: int, tmp_path: Path, repository: Path) -> None:
    run(writers, "save", tmp_path, repository)
    (written,) = (p for p in tmp_path.iterdir())
    assert len(list(written.glob("*.safetensors"))) == writers
    index = json.loads((written / "index.json").read_text())["index"]
    parts = [(s["file"], s["key"]) for t in index["tensors"].values() for s in t["shards"]]
    assert len(parts) == len(set(parts)) == 4 + 4 + 1 + 1
    check(shardc.load_checkpoint(tmp_path).tree, 1)
    assert run(readers, "load", tmp_path, repository) == "done\n"


def test_ranks_that_fail_in_the_middle(tmp_path: Path, repository: Path) -> None:
    run(4, "save", tmp_path, repository)
    assert run(4, "fail", tmp_path, repository) == "done\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000001", "step-00000002"]
    check(shardc.load_checkpoint(tmp_path).tree, 2)


def test_ranks_that_die_in_the_middle(tmp_path: Path, repository: Path) -> None:
    run(4, "save", tmp_path, repository)
    assert mpiexec(4, *WORKER, "die", str(tmp_path), cwd=repository, SHARDC_TIMEOUT="1").returncode != 0
    assert shardc.latest_checkpoint(tmp_path) == tmp_path / "step-00000001"
    check(shardc.load_checkpoint(tmp_path).tree, 1)
    shardc.save_checkpoint(tmp_path, tree(3), step=3, keep=1)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000003"]


def test_ranks_go_on_while_files_are_written(tmp_path: Path, repository: Path) -> None:
    assert run(2, "background", tmp_path, repository) == "done\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000001", "step-00000002"]
    check(shardc.load_checkpoint(tmp_path).tree, 2)


def test_ranks_with_different_values(tmp_path: Path, repository: Path) -> None:
    pytest.importorskip("jax")
    assert run(2, "different", tmp_path, repository) == "done\n"
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]


UNFINISHED = """
import numpy as np, shardc
w = shardc.array(np.ones(6), (shardc.Mesh({"d": 2}), shardc.P("d")))
checkpointer = shardc.AsyncCheckpointer("run")
checkpointer.save({"w": w}, step=7)
if {wait}:
    checkpointer.wait()
"""


@pytest.mark.parametrize("wait", [False, True])
def test_a_checkpoint_that_nobody_waited_for_is_told(wait: bool, tmp_path: Path) -> None:
    done = mpiexec(2, sys.executable, "-c", UNFINISHED.replace("{wait}", str(wait)), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "step-00000007").exists() == wait
    assert done.stderr.count("step-00000007 was written, but not completed") == (not wait)
