"""Rows of several arrays, turned around in one kernel: nothing is read that an array does not hold."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardc
from tests.compiler.test_alternate_loads import at_the_end

PROGRAM = """HloModule turned
ENTRY main {{
  a = {t}[8,512] parameter(0)
  x = {t}[512,512] parameter(1)
  other = {t}[520,8] parameter(2)
  k = s32[] parameter(3)
  before = {t}[8,8] slice(a), slice={{[0:8], [504:512]}}
  rows = {t}[512,8] slice(x), slice={{[0:512], [504:512]}}
  joined = {t}[520,8] concatenate(rows, before), dimensions={{0}}
  turned = {t}[520,8] reverse(joined), dimensions={{1}}
  zero = s32[] constant(0)
  own = pred[] compare(k, zero), direction=EQ
  mask = pred[520,8] broadcast(own), dimensions={{}}
  ROOT chosen = {t}[520,8] select(mask, turned, other)
}}
"""


def placed_at_the_end(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    memory, _ = at_the_end(a)
    return np.frombuffer(memory, a.dtype, a.size, len(memory) - mmap.PAGESIZE - a.nbytes).reshape(a.shape)


@pytest.mark.skipif(not hasattr(mmap, "PROT_READ"), reason="no page protection here")
@pytest.mark.parametrize("name", ["f64", "f32", "s16"])
def test_rows_of_another_array_are_not_read_of_this_one(name: str, tmp_path: Path) -> None:
    """LLVM may make a load under a mask and a choice by the same mask one instruction that reads in any case."""
    file = tmp_path / "turned.hlo"
    file.write_text(PROGRAM.format(t=name), encoding="utf-8")
    dtype = {"f64": np.float64, "f32": np.float32, "s16": np.int16}[name]
    given = [np.arange(np.prod(s), dtype=dtype).reshape(s) for s in ((8, 512), (512, 512), (520, 8))]
    arguments = [placed_at_the_end(a) for a in given]
    made = np.asarray(shardc.load(file).compile("cpu")(*arguments, np.int32(0)))
    np.testing.assert_array_equal(made, np.concatenate([given[1], given[0]])[:, :503:-1])
