"""A process that ends at any moment of a save: what was there before stays whole, and the next save works."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors

import shardc

CALLS = ("rename", "replace", "unlink", "rmdir", "mkdir", "fsync", "chmod")


class Gone(BaseException):
    """The process is no more."""


class Doomed:
    """Lets so many changes of the disk happen; from then on none."""

    def __init__(self, patch: pytest.MonkeyPatch, left: int) -> None:
        self.left = left
        for name in CALLS:
            patch.setattr(os, name, self.counted(getattr(os, name)))
        patch.setattr(safetensors, "serialize_file", self.counted(safetensors.serialize_file, half=True))

    def counted(self, call: Callable[..., Any], half: bool = False) -> Callable[..., Any]:
        def counting(*args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                if half and self.left == -1:
                    Path(args[1]).write_bytes(b"half")
                raise Gone
            return call(*args, **kwargs)

        return counting


@pytest.mark.parametrize("overwrite", [False, True])
def test_at_any_moment(overwrite: bool, tmp_path: Path) -> None:
    """Overwriting a step, or writing the next one and removing the last."""
    before, after = ({"w": np.full(9, v, np.float32)} for v in (1, 2))
    step = 1 if overwrite else 2
    for moment in range(100):
        folder = tmp_path / str(moment)
        shardc.save_checkpoint(folder, before, step=1)
        with pytest.MonkeyPatch.context() as patch:
            doomed = Doomed(patch, moment)
            with suppress(Gone):
                shardc.save_checkpoint(folder, after, step=step, overwrite=overwrite, keep=1)
        finished = doomed.left >= 0
        found = shardc.load_checkpoint(folder)
        assert found.tree["w"][0] in ((2,) if finished else (1, 2))
        assert found.step == (step if found.tree["w"][0] == 2 else 1)
        again = shardc.save_checkpoint(folder, after, step=step, overwrite=True, keep=1)
        assert [p.name for p in folder.iterdir()] == [again.name]
        assert len(list(again.iterdir())) == 2
        np.testing.assert_array_equal(shardc.load_checkpoint(folder).tree["w"], after["w"])
        if finished:
            break
    assert moment > 8
