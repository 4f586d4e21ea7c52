"""Partitioned against unpartitioned, for programs of all kinds."""

from __future__ import annotations

from pathlib import Path

import pytest

import shardc
from shardc.analysis.verify import verify_program

SUM = """
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
"""
MANUAL = f"""HloModule m, num_partitions=4
{SUM}
ENTRY main {{
  x = f32[8,6] parameter(0), sharding={{devices=[2,2]<=[4]}}
  whole = f32[8,6] custom-call(x), custom_call_target="Sharding", sharding={{devices=[2,2]<=[4]}}
  mine = f32[4,6] custom-call(whole), custom_call_target="SPMDFullToShardShape",
    sharding={{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dims={{manual}}}}
  all = f32[4,6] all-reduce(mine), to_apply=sum, channel_id=1, use_global_device_ids=true,
    replica_groups={{{{0,2}},{{1,3}}}}
  ROOT r = f32[8,6] custom-call(all), custom_call_target="SPMDShardToFullShape", sharding={{devices=[2,2]<=[4]}}
}}
"""
#: Sums of products over a split dimension, in a state whose arrays are results too; one argument is given away.
LOOP = """HloModule m, num_partitions=4, input_output_alias={ {1}: (1, {}, may-alias) }

body {
  p = (s32[], bf16[6,6], s32[6], bf16[8,6]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  t = bf16[6,6] get-tuple-element(p), index=1
  n = s32[6] get-tuple-element(p), index=2
  x = bf16[8,6] get-tuple-element(p), index=3
  d = bf16[6,6] dot(x, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  more = bf16[6,6] add(t, d)
  twice = s32[6] add(n, n)
  ROOT s = (s32[], bf16[6,6], s32[6], bf16[8,6]) tuple(next, more, twice, x)
}

condition {
  p = (s32[], bf16[6,6], s32[6], bf16[8,6]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  three = s32[] constant(3)
  ROOT less = pred[] compare(i, three), direction=LT
}

ENTRY main {
  both = (bf16[8,6], s32[6]) parameter(0), sharding={{devices=[4,1]<=[4]}, {devices=[4]<=[4]}}
  x = bf16[8,6] get-tuple-element(both), index=0
  n = s32[6] get-tuple-element(both), index=1
  t = bf16[6,6] parameter(1)
  zero = s32[] constant(0)
  start = (s32[], bf16[6,6], s32[6], bf16[8,6]) tuple(zero, t, n, x)
  loop = (s32[], bf16[6,6], s32[6], bf16[8,6]) while(start), condition=condition, body=body
  n.2 = s32[6] get-tuple-element(loop), index=2
  t.2 = bf16[6,6] get-tuple-element(loop), index=1
  ROOT out = (s32[6], bf16[6,6]) tuple(n.2, t.2)
}
"""


@pytest.mark.parametrize("text", [MANUAL, LOOP], ids=["manual", "loop"])
def test_programs_of_all_kinds_agree(text: str, tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(text)
    rows = verify_program(shardc.load(path), trials=2)
    assert all(r["agrees"] and not r["difference"] for r in rows)
    assert {r["trial"] for r in rows} == {0, 1}
    if text is LOOP:
        assert [r["exact"] for r in rows] == [True, False] * 2
