"""One rank of a job with checkpoints: ``checkpoint_worker.py save|load|different|fail|die|background FOLDER``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import shardc
from shardc import Mesh, P
from shardc.hlo.errors import InputError, RunError, ShardcError
from shardc.launcher.checkpoint import save

MESH, OTHER = Mesh({"x": 2, "y": 2}), Mesh({"y": 4, "x": 2})
X = np.arange(35, dtype=np.float32).reshape(7, 5)
SPECS = {"w": P("y", "x"), "b": P(("x", "y")), "r": P()}


def tree(step: int = 0) -> dict[str, Any]:
    values = {"w": X + step, "b": X[:, 0].astype(ml_dtypes.bfloat16), "r": X[0]}
    arrays = {k: shardc.array(v, (MESH, SPECS[k])) for k, v in values.items()}
    return {"params": arrays, "step": step, "seen": [np.arange(3), None]}


def check(found: Any, step: int) -> None:
    assert found["step"] == step
    assert np.array_equal(shardc.gather(found["params"]["w"]), X + step)
    assert np.array_equal(shardc.gather(found["params"]["b"]), X[:, 0].astype(ml_dtypes.bfloat16))
    assert np.array_equal(shardc.gather(found["params"]["r"]), X[0])
    assert np.array_equal(found["seen"][0], np.arange(3))


def in_background(folder: str) -> None:
    """Steps communicate while files are written; rank 1 fails to write the third checkpoint, and all ranks raise."""
    whole, rank = save.write_file, shardc.process_index()
    total = shardc.jit(lambda x: x.sum(), mesh=MESH, in_shardings=P("x", "y"), out_shardings=P())
    checkpointer = shardc.AsyncCheckpointer(folder)
    for step in (1, 2):
        checkpointer.save(tree(step), step=step)
        assert float(np.asarray(total(np.ones((4, 4), np.float32)))) == 16
    checkpointer.wait()

    def write(path: Any, arrays: Any, metadata: Any) -> int:
        if rank == 1:
            raise OSError(28, "No space left on device", str(path))
        return whole(path, arrays, metadata)

    save.write_file = write  # type: ignore[assignment]
    checkpointer.save(tree(3), step=3)
    try:
        checkpointer.wait()
    except ShardcError as e:
        assert "No space left on device" in str(e)
    else:
        raise AssertionError("a disk that is full")
    save.write_file = whole


def different(folder: str) -> None:
    """Host arrays, PRNG keys and numbers of which each rank has another value: all ranks hear of the leaf."""
    import jax

    rank = shardc.process_index()
    same = {"same": np.arange(3), "count": 4}
    own: dict[str, Any] = {"inner.a": np.ones(2) * rank, "b": np.float32(rank), "key": jax.random.key(rank), "n": rank}
    for name, value in own.items():
        outer, _, inner = name.partition(".")
        try:
            shardc.save_checkpoint(folder, {**same, outer: {inner: value} if inner else value}, step=1)
        except InputError as e:
            assert e.what == "rank 0 and rank 1 save different trees", e.what
            assert e.where == f"leaf {name}", e.where
        else:
            raise AssertionError(name)
    for place, step in ((f"{folder}/{rank}", 1), (folder, rank)):
        try:
            shardc.save_checkpoint(place, same, step=step)
        except InputError as e:
            assert e.what.startswith(f"rank 0 saves {folder}"), e.what
            assert ", but rank 1 saves " in e.what, e.what
        else:
            raise AssertionError((place, step))
    assert not list(Path(folder).iterdir())
    shardc.save_checkpoint(folder, {**same, "a": np.full(2, np.nan)}, step=1)


def disturbed(folder: str, what: str) -> None:
    """Rank 1 (and 3) fails or dies in the middle of writing a second checkpoint."""
    whole, rank = save.write_file, shardc.process_index()
    try:
        shardc.save_checkpoint(folder, tree(2) | {"rank": rank}, step=2)
    except ShardcError as e:
        assert "rank 0 and rank 1 save different trees" in str(e)
    else:
        raise AssertionError("different trees")

    def write(path: Any, arrays: Any, metadata: Any) -> int:
        if rank % 2:
            path.write_bytes(b"half")
            if what == "die":
                os._exit(7)
            raise OSError(28, "No space left on device", str(path))
        return whole(path, arrays, metadata)

    save.write_file = write  # type: ignore[assignment]
    try:
        shardc.save_checkpoint(folder, tree(2), step=2)
    except ShardcError as e:
        text = str(e)
        assert "No space left on device" in text, text
        assert isinstance(e, RunError) == (rank % 2 == 0), text
        assert rank % 2 or "rank 1 failed writing a checkpoint" in text, text
    else:
        raise AssertionError("nothing failed")
    save.write_file = whole
    check(shardc.load_checkpoint(folder).tree, 1)
    shardc.save_checkpoint(folder, tree(2), step=2)


def main(what: str, folder: str) -> None:
    if what == "save":
        shardc.save_checkpoint(folder, tree(1), step=1)
    elif what == "load":
        check(shardc.load_checkpoint(folder).tree, 1)
        found = shardc.load_checkpoint(folder, mesh=OTHER).tree
        assert found["params"]["w"].sharding.mesh == OTHER
        check(found, 1)
    elif what == "different":
        different(folder)
    elif what == "background":
        in_background(folder)
    else:
        disturbed(folder, what)
    if shardc.process_index() == 0:
        print("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
