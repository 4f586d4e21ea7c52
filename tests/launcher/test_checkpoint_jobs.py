"""Jobs that know nothing of each other and save into one folder; checkpoints that are incomplete."""

from __future__ import annotations

import errno
import fcntl
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardc
from shardc.launcher.checkpoint import save as saving
from shardc.launcher.checkpoint.locks import Lock

SAVER = """
import sys, numpy as np, shardc
folder, which, overwrite = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "True"
x = shardc.array(np.full((8, 1 << 14), which), (shardc.Mesh({"a": 4}), shardc.P("a")))
for step in range(8):
    try:
        shardc.save_checkpoint(folder, {"x": x}, step=step, overwrite=overwrite, keep=6 if overwrite else None)
        print(step)
    except shardc.ShardcError as e:
        assert "this step" in str(e), e
"""


@pytest.mark.parametrize("overwrite", [False, True])
def test_processes_that_save_the_same_steps(overwrite: bool, tmp_path: Path) -> None:
    command = (sys.executable, "-c", SAVER, str(tmp_path))
    jobs = [
        subprocess.Popen((*command, str(k), str(overwrite)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for k in range(2)
    ]
    said = [job.communicate(timeout=100) for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], said
    saved = sorted(int(step) for out, _ in said for step in out.split())
    assert saved == sorted([*range(8)] * (2 if overwrite else 1)), said
    found = sorted(tmp_path.iterdir())
    assert [p.name for p in found] == [f"step-{step:08d}" for step in range(2 if overwrite else 0, 8)]
    for path in found:
        x = np.asarray(shardc.load_checkpoint(path).tree["x"])
        assert np.unique(x).size == 1
        assert len(list(path.iterdir())) == 2


class Slow:
    """A save of ``step`` that another thread writes once `go` is called."""

    def __init__(self, folder: Path, step: int, patch: pytest.MonkeyPatch, overwrite: bool = False) -> None:
        opened, write = threading.Event(), saving.write_file

        def later(*given: Any) -> int:
            assert opened.wait(60)
            return write(*given)

        with patch.context() as inside:
            self.checkpointer = shardc.AsyncCheckpointer(folder, overwrite=overwrite)
            started = threading.Event()
            inside.setattr(saving, "write_file", lambda *given: (started.set(), later(*given))[1])
            self.checkpointer.save({"x": np.ones(3)}, step=step)
            assert started.wait(60)
        self._opened = opened

    def go(self) -> None:
        self._opened.set()
        self.checkpointer.wait()


def test_a_save_leaves_what_another_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = tmp_path / ".step-00000001.0.partial"
    left.mkdir()
    slow = Slow(tmp_path, 2, monkeypatch)
    shardc.save_checkpoint(tmp_path, {"x": np.zeros(3)}, step=1, keep=1)
    assert not left.exists()
    slow.go()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000001", "step-00000002"]
    assert shardc.load_checkpoint(tmp_path).tree["x"][0] == 1


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_step_that_another_save_completes(overwrite: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(tmp_path, 2, monkeypatch, overwrite)
    shardc.save_checkpoint(tmp_path, {"x": np.zeros(3)}, step=2)
    if overwrite:
        slow.go()
    else:
        with pytest.raises(shardc.ShardcError, match="another save has completed this step meanwhile"):
            slow.go()
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000002"]
    assert shardc.load_checkpoint(tmp_path).tree["x"][0] == overwrite


def test_a_disk_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Saves work; one whose folder another has removed tells that."""

    def none(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    slow = Slow(tmp_path, 1, monkeypatch)
    for step in (2, 2):
        path = shardc.save_checkpoint(tmp_path, {"x": np.ones(3)}, step=step, overwrite=True)
    with pytest.raises(shardc.ShardcError, match=r"cannot be written|was removed while"):
        slow.go()
    assert list(tmp_path.iterdir()) == [path]
    assert len(list(path.iterdir())) == 2


def test_locks(tmp_path: Path) -> None:
    """They end with their process, and a file that was removed is none."""
    path = tmp_path / "lock"
    hold = f"import time, pathlib\nfrom {Lock.__module__} import Lock\nlock = Lock(pathlib.Path({str(path)!r}))\n"
    with subprocess.Popen((sys.executable, "-c", f"{hold}print(1, flush=True)\ntime.sleep(99)"), stdout=-1) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(BlockingIOError):
            Lock(path)
        threading.Timer(0.1, other.kill).start()
        lock = Lock(path, wait=60)
    path.unlink()
    Lock(path).release(remove=False)
    lock.release()
    assert not path.exists()
    lock.release()


def test_an_incomplete_checkpoint_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for step in (1, 2):
        path = shardc.save_checkpoint(tmp_path, {"x": np.ones(3)}, step=step)
    assert shardc.load_checkpoint(tmp_path).step == 2
    assert not caplog.messages
    (path / "index.json").unlink()
    assert shardc.load_checkpoint(tmp_path).step == 1
    assert caplog.messages == [f"{path} is incomplete and is left out: it has no index.json"]
    with pytest.raises(shardc.ShardcError, match=r"step-00000002 is incomplete: it has no index\.json"):
        shardc.load_checkpoint(path)
    elsewhere = path.rename(tmp_path / "copy")
    with pytest.raises(shardc.ShardcError, match=r"copy is incomplete: it has no index\.json"):
        shardc.load_checkpoint(elsewhere)
