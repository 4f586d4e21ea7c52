"""Programs whose large constants were left out of the text: everything but a run works on them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import shardc
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.transforms.structure import literal_digest

PROGRAM = """HloModule m, num_partitions=4

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

lt {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = pred[] compare(a, b), direction=LT
}

ENTRY main {
  x = f32[64,48] parameter(0), sharding={devices=[4,1]<=[4]}
  z = f32[] constant(0)
  i = s32[] constant(3)
  BODY
}
"""
WIDE = "c = f32[64,48] constant({...})\n  "
USES = {
    "product": "c = f32[48,48] constant({...})\n"
    "  ROOT y = f32[64,48] dot(x, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "row": "c = f32[48] constant({...})\n  b = f32[64,48] broadcast(c), dimensions={1}\n"
    "  ROOT y = f32[64,48] add(x, b)",
    "two": WIDE + "d = f32[64,48] constant({...})\n  e = f32[64,48] add(x, c)\n  ROOT y = f32[64,48] multiply(e, d)",
    "positions": "c = s32[32,1] constant({...})\n  ROOT y = f32[32,48] gather(x, c), offset_dims={1}, "
    "collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,48}",
    "mask": "c = pred[64,48] constant({...})\n  b = f32[64,48] broadcast(z), dimensions={}\n"
    "  ROOT y = f32[64,48] select(c, x, b)",
    "reshape": "c = f32[3072] constant({...})\n  r = f32[64,48] reshape(c)\n  ROOT y = f32[64,48] add(x, r)",
    "slice": "c = f32[128,48] constant({...})\n  r = f32[64,48] slice(c), slice={[3:67],[0:48]}\n"
    "  ROOT y = f32[64,48] add(x, r)",
    "pad": "c = f32[60,48] constant({...})\n  r = f32[64,48] pad(c, z), padding=2_2x0_0\n"
    "  ROOT y = f32[64,48] add(x, r)",
    "negative": WIDE + "r = f32[64,48] negate(c)\n  ROOT y = f32[64,48] add(x, r)",
    "update": "c = f32[4,48] constant({...})\n  ROOT y = f32[64,48] dynamic-update-slice(x, c, i, i)",
    "scatter": "c = s32[32,1] constant({...})\n  u = f32[32,48] constant({...})\n"
    "  ROOT y = f32[64,48] scatter(x, c, u), update_window_dims={1}, "
    "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add",
    "sort": WIDE + "m = f32[64,48] add(x, c)\n  ROOT y = f32[64,48] sort(m), dimensions={0}, to_apply=lt",
    "sum": WIDE
    + "m = f32[48] reduce(c, z), dimensions={0}, to_apply=add\n  b = f32[64,48] broadcast(m), dimensions={1}\n"
    "  ROOT y = f32[64,48] add(x, b)",
}


@pytest.mark.parametrize("use", USES)
def test_all_but_a_run(use: str, tmp_path: Path) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(PROGRAM.replace("BODY", USES[use]))
    program = shardc.load(file)
    partitioned = program.partition()
    assert partitioned.report()["devices"] == 4
    assert "constant({...})" in partitioned.as_text()
    assert partitioned.explanation(remedies=1).as_text()
    assert program.partition(machine="h100-dgx").simulate().step_seconds > 0
    with pytest.raises(UnsupportedError, match=r"was left out[\s\S]*m\.hlo:\d+"):
        partitioned.compile()(np.ones((64, 48), np.float32))


def test_constants_without_values_are_not_one(tmp_path: Path) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(PROGRAM.replace("BODY", USES["two"]))
    entry = shardc.load(file).module.entry
    large = [i.attrs["literal"] for i in entry if i.opcode == "constant" and i.shape.rank]
    assert len({literal_digest(c) for c in large}) == 2
