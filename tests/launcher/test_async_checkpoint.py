"""Checkpoints that are written while the program goes on: copies, waiting, errors, and crashes of the writer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardc
from shardc import Mesh, P
from shardc.launcher.checkpoint import save as saving

MESH = Mesh({"d": 4})


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Files are written once this is set."""
    opened = threading.Event()
    write: Callable[..., int] = saving.write_file

    def later(*given: Any) -> int:
        assert opened.wait(60)
        return write(*given)

    monkeypatch.setattr(saving, "write_file", later)
    return opened


def test_a_save_returns_before_the_files_are_written(tmp_path: Path, gate: threading.Event) -> None:
    """And it has the values of that moment: the program writes to its arrays and donates them."""
    plain = np.arange(8.0)
    split = shardc.array(np.arange(8, dtype=np.float32), (MESH, P("d")))
    add = shardc.jit(lambda x: x + 1, mesh=MESH, in_shardings=P("d"), out_shardings=P("d"), donate_argnums=0)
    with shardc.AsyncCheckpointer(tmp_path) as checkpointer:
        path = checkpointer.save({"plain": plain, "split": split}, step=5)
        assert not path.exists()
        assert shardc.latest_checkpoint(tmp_path) is None
        plain[:] = -1
        add(split)
        gate.set()
    found = shardc.load_checkpoint(tmp_path)
    assert found.step == 5
    np.testing.assert_array_equal(found.tree["plain"], np.arange(8.0))
    np.testing.assert_array_equal(np.asarray(found.tree["split"]), np.arange(8, dtype=np.float32))


def test_the_next_save_waits_for_the_last(tmp_path: Path, gate: threading.Event) -> None:
    checkpointer = shardc.AsyncCheckpointer(tmp_path, keep=1)
    first = checkpointer.save({"x": np.ones(3)}, step=1)
    threading.Timer(0.2, gate.set).start()
    second = checkpointer.save({"x": np.ones(3)}, step=2)
    assert first.exists()
    checkpointer.wait()
    checkpointer.wait()
    assert second.exists()
    assert not first.exists()


@pytest.mark.parametrize("by", ["wait", "save", "with"])
def test_an_error_reaches_the_caller_once(by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(saving, "write_file", full)
    checkpointer = shardc.AsyncCheckpointer(tmp_path)
    tree = {"x": np.ones(3)}
    checkpointer.save(tree, step=1)
    with pytest.raises(shardc.ShardcError, match="No space left"):
        if by == "wait":
            checkpointer.wait()
        elif by == "save":
            checkpointer.save(tree, step=2)
        else:
            checkpointer.__exit__(None, None, None)
    monkeypatch.undo()
    assert shardc.latest_checkpoint(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    if by != "with":
        checkpointer.save(tree, step=3)
        checkpointer.wait()
        assert shardc.load_checkpoint(tmp_path).step == 3


def test_wrong_arguments_are_told_at_once(tmp_path: Path) -> None:
    with shardc.AsyncCheckpointer(tmp_path) as checkpointer:
        checkpointer.save({"x": np.ones(3)}, step=1)
        with pytest.raises(shardc.ShardcError, match="a checkpoint of this step already exists"):
            checkpointer.save({"x": np.ones(3)}, step=1)


def test_an_error_in_the_block_is_the_one_that_is_raised(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), shardc.AsyncCheckpointer(tmp_path) as checkpointer:
        path = checkpointer.save({"x": np.ones(3)}, step=1)
        raise ZeroDivisionError
    assert path.exists()


def test_it_cannot_be_used_after_the_block(tmp_path: Path) -> None:
    with shardc.AsyncCheckpointer(tmp_path) as checkpointer:
        checkpointer.save({"x": np.ones(3)}, step=1)
    checkpointer.wait()
    with pytest.raises(shardc.ShardcError, match="the checkpointer is closed"):
        checkpointer.save({"x": np.ones(3)}, step=2)
