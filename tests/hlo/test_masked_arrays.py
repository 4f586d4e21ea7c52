"""Masked arrays are refused wherever arrays come in: programs know no masks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardc
import shardc.numpy as snp
from shardc.hlo.errors import InputError

MASKED = np.ma.masked_array(np.arange(8.0), np.arange(8) > 3)  # type: ignore[no-untyped-call]
ONES = np.ones(8)


def total(x: Any) -> Any:
    return x.sum()


@pytest.mark.parametrize(
    "take",
    [
        lambda: shardc.trace(total, MASKED),
        lambda: shardc.trace(total, ONES).compile()(MASKED),
        lambda: shardc.trace(lambda x: x + MASKED, ONES),
        lambda: shardc.trace(lambda x: np.where(x > 0, MASKED, x), ONES),
        lambda: snp.jit(total)(MASKED),
        lambda: snp.array(MASKED),
        lambda: snp.asarray(MASKED),
        lambda: snp.ones(8) + MASKED,
        lambda: shardc.array(MASKED, None),
        lambda: shardc.device_put({"a": MASKED}, None),
    ],
)
def test_masks_are_not_dropped(take: Callable[[], Any]) -> None:
    with pytest.raises(InputError, match=r"masked array[\s\S]*filled\(value\)"):
        take()


def test_checkpoints_take_no_masks(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="masked array"):
        shardc.save_checkpoint(tmp_path, {"a": MASKED}, step=0)
