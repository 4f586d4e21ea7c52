"""A program for four ranks with every kind of collective, groups over two axes, and a loop."""

from __future__ import annotations

import numpy as np

from shardc.hlo.text.reader import read_hlo
from shardc.launcher.driver.compiled import Compiled
from shardc.stages.stages import Program

#: Collectives that a rank comes to in one step, the loop's twice.
COLLECTIVES = 9

ALL = "replica_groups={{0,1,2,3}}, use_global_device_ids=true"
TEXT = """HloModule faults, num_partitions=4

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

body {
  state = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[8] get-tuple-element(state), index=1
  rows = f32[8] all-reduce(x), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=sum
  turned = f32[8] collective-permute(rows), channel_id=2, source_target_pairs={{0,1},{1,2},{2,3},{3,0}}
  half = f32[] constant(0.5)
  halves = f32[8] broadcast(half), dimensions={}
  scaled = f32[8] multiply(turned, halves)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT next = (s32[], f32[8]) tuple(j, scaled)
}

condition {
  state = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  n = s32[] constant(2)
  ROOT more = pred[] compare(i, n), direction=LT
}

ENTRY main_spmd {
  x = f32[8] parameter(0), sharding={devices=[4]<=[4]}
  columns = f32[8] all-reduce(x), channel_id=3, replica_groups={{0,2},{1,3}}, use_global_device_ids=true, to_apply=sum
  part = f32[2] reduce-scatter(columns), channel_id=4, $ALL$, dimensions={0}, to_apply=sum
  whole = f32[8] all-gather(part), channel_id=5, $ALL$, dimensions={0}
  zero = s32[] constant(0)
  start = (s32[], f32[8]) tuple(zero, whole)
  end = (s32[], f32[8]) while(start), condition=condition, body=body
  y = f32[8] get-tuple-element(end), index=1
  z = f32[8] all-to-all(y), channel_id=6, replica_groups={{0,1,2,3}}, dimensions={0}
  ROOT total = f32[8] all-reduce(z), channel_id=7, $ALL$, to_apply=sum
}
""".replace("$ALL$", ALL)


def compiled() -> Compiled:
    """The program, ready to run."""
    return Program(read_hlo(TEXT, "faults")).propagate().partition().compile()


def argument() -> np.ndarray:
    return np.arange(32, dtype=np.float32)
