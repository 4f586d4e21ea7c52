"""Dimensions beyond 2^31 and 2^32 elements: positions are right, and what no memory holds is refused when it runs.

The programs here are only partitioned and verified; those that need no array as long as the dimension run.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from shardc.hlo.errors import RunError
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.ir import Module
from shardc.hlo.text.reader import read_hlo
from shardc.hlo.verify import verify
from shardc.launcher.arrays.gather import gather
from shardc.partitioner.partition import partition
from shardc.sharding.propagate import propagate
from shardc.stages.stages import Program

SIZES = (2**31 - 1, 2**31, 2**32, 2**40)
TYPES = ("s32", "s64", "u32")
FUNCTIONS = """
add { x = u8[] parameter(0)
  y = u8[] parameter(1)
  ROOT r = u8[] add(x, y) }
less { x = u8[] parameter(0)
  y = u8[] parameter(1)
  ROOT r = pred[] compare(x, y), direction=LT }
"""
#: N is the size, I the type of indices, SPLIT a sharding of one dimension, ROWS one of two.
PROGRAMS = {
    "iota": "ROOT r = s64[N] iota(), iota_dimension=0, SPLIT",
    "slice": "p = u8[N] parameter(0), SPLIT\n m = u8[M5] slice(p), slice={[5:N]}\n ROOT r = u8[M5] negate(m), SPLIT",
    "pad": "p = u8[N] parameter(0), SPLIT\n z = u8[] constant(0)\n ROOT r = u8[P3] pad(p, z), padding=1_2, SPLIT",
    "reverse": "p = u8[N] parameter(0), SPLIT\n ROOT r = u8[N] reverse(p), dimensions={0}, SPLIT",
    "join": "p = u8[N] parameter(0), SPLIT\n ROOT r = u8[D2] concatenate(p, p), dimensions={0}, SPLIT",
    "sum": "p = u8[P3] parameter(0), SPLIT\n z = u8[] constant(0)\n"
    " ROOT r = u8[] reduce(p, z), dimensions={0}, to_apply=add",
    "sort": "p = u8[P3] parameter(0), SPLIT\n ROOT r = u8[P3] sort(p), dimensions={0}, to_apply=less, SPLIT",
    "window": "p = u8[N] parameter(0), SPLIT\n z = u8[] constant(0)\n"
    " ROOT r = u8[N] reduce-window(p, z), window={size=3 pad=1_1}, to_apply=add, SPLIT",
    "dynamic slice": "p = u8[N,3] parameter(0), ROWS\n i = I[] parameter(1)\n j = I[] parameter(2)\n"
    " ROOT r = u8[4,2] dynamic-slice(p, i, j), dynamic_slice_sizes={4,2}",
    "update": "p = u8[N,3] parameter(0), ROWS\n u = u8[4,2] parameter(1)\n"
    " i = I[] parameter(2)\n j = I[] parameter(3)\n"
    " ROOT r = u8[N,3] dynamic-update-slice(p, u, i, j), ROWS",
    "gather": "p = u8[N,3] parameter(0), ROWS\n i = I[4,2] parameter(1)\n"
    " ROOT r = u8[4,2,2] gather(p, i), offset_dims={1,2}, collapsed_slice_dims={}, start_index_map={0,1},"
    " index_vector_dim=1, slice_sizes={2,2}",
    "scatter": "p = u8[N,3] parameter(0), ROWS\n i = I[4,2] parameter(1)\n u = u8[4,2,2] parameter(2)\n"
    " ROOT r = u8[N,3] scatter(p, i, u), update_window_dims={1,2}, inserted_window_dims={},"
    " scatter_dims_to_operand_dims={0,1}, index_vector_dim=1, to_apply=add, ROWS",
    "random": "s = u64[2] parameter(0)\n ROOT r = u8[N] rng-bit-generator(s), algorithm=rng_three_fry, SPLIT",
}


def program(body: str, n: int, index: str = "s64") -> Module:
    words = {"N": n, "M5": n - 5, "P3": n + 3, "D2": 2 * n, "I": index}
    words["SPLIT"] = "sharding={devices=[4]<=[4]}"
    words["ROWS"] = "sharding={devices=[4,1]<=[4]}"
    text = re.sub(r"\b(N|M5|P3|D2|I|SPLIT|ROWS)\b", lambda m: str(words[m[1]]), body)
    return propagate(read_hlo(f"HloModule m, num_partitions=4\n{FUNCTIONS}\nENTRY e {{\n {text}\n}}")).module


@pytest.mark.parametrize("name", PROGRAMS)
def test_long_dimensions_partition(name: str) -> None:
    body = PROGRAMS[name]
    for n in SIZES:
        for index in TYPES if "I[" in body else ("s64",):
            verify(partition(program(body, n, index)))


def test_positions_beyond_32_bits() -> None:
    n = 2**33
    body = (
        "i = s64[] parameter(0)\n a = s64[N] iota(), iota_dimension=0, SPLIT\n"
        " ROOT r = s64[4] dynamic-slice(a, i), dynamic_slice_sizes={4}"
    )
    compiled = Program(program(body, n)).compile()
    for start, want in ((n - 100, n - 100), (2**32 + 7, 2**32 + 7), (n, n - 4), (-1, 0)):
        np.testing.assert_array_equal(gather(compiled.run([np.int64(start)])[0]), np.arange(want, want + 4))


def test_what_no_memory_holds_is_told_when_it_runs() -> None:
    module = program(PROGRAMS["iota"], 2**50)
    with pytest.raises(RunError, match=r"8192.0 TiB of memory are not available") as caught:
        Program(module).compile().run([])
    assert "s64[1125899906842624]" in str(caught.value)
    with pytest.raises(RunError, match="out of memory in iota") as caught:
        evaluate(module, [])
    assert "%r" in str(caught.value)
