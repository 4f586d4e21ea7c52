"""Programs for tests of simulations, as HLO text."""

from __future__ import annotations

#: A loop of ``trips`` products, the batch over ``data`` and the contracted dimension over ``model``.
LOOP = """HloModule loop

body {
  state = (s32[], f32[1024,2048]{1,0}, f32[2048,2048]{1,0}) parameter(0)
  n = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(n, one)
  h = f32[1024,2048]{1,0} get-tuple-element(state), index=1
  w = f32[2048,2048]{1,0} get-tuple-element(state), index=2
  y = f32[1024,2048]{1,0} dot(h, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, \
    metadata={op_name="layer/dot_general"}
  again = f32[1024,2048]{1,0} dot(y, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, \
    metadata={op_name="checkpoint/rematted_computation/dot_general"}
  t = f32[1024,2048]{1,0} tanh(again)
  ROOT out = (s32[], f32[1024,2048]{1,0}, f32[2048,2048]{1,0}) tuple(next, t, w)
}

condition {
  state = (s32[], f32[1024,2048]{1,0}, f32[2048,2048]{1,0}) parameter(0)
  n = s32[] get-tuple-element(state), index=0
  trips = s32[] constant(TRIPS)
  ROOT more = pred[] compare(n, trips), direction=LT
}

ENTRY main {
  x = f32[1024,2048]{1,0} parameter(0), metadata={op_name="x"}
  w = f32[2048,2048]{1,0} parameter(1), metadata={op_name="w"}
  zero = s32[] constant(0)
  init = (s32[], f32[1024,2048]{1,0}, f32[2048,2048]{1,0}) tuple(zero, x, w)
  run = (s32[], f32[1024,2048]{1,0}, f32[2048,2048]{1,0}) while(init), condition=condition, body=body
  ROOT out = f32[1024,2048]{1,0} get-tuple-element(run), index=1
}
"""

#: The same, until it has converged: nobody knows when.
UNKNOWN = """HloModule converge

body {
  state = (f32[512]{0}, f32[]) parameter(0)
  x = f32[512]{0} get-tuple-element(state), index=0
  y = f32[512]{0} cosine(x)
  first = f32[1]{0} slice(y), slice={[0:1]}
  s = f32[] reshape(first)
  ROOT out = (f32[512]{0}, f32[]) tuple(y, s)
}

condition {
  state = (f32[512]{0}, f32[]) parameter(0)
  s = f32[] get-tuple-element(state), index=1
  limit = f32[] constant(0.5)
  ROOT more = pred[] compare(s, limit), direction=GT
}

ENTRY main {
  x = f32[512]{0} parameter(0)
  one = f32[] constant(1)
  init = (f32[512]{0}, f32[]) tuple(x, one)
  run = (f32[512]{0}, f32[]) while(init), condition=condition, body=body, metadata={source_file="m.py" source_line=3}
  ROOT out = f32[512]{0} get-tuple-element(run), index=0
}
"""

#: What a device runs, as XLA dumps it: scheduled, an asynchronous pair, listed groups.
PER_DEVICE = """HloModule dumped, is_scheduled=true, num_partitions=8, \
entry_computation_layout={(f32[256,1024]{1,0}, f32[1024,1024]{1,0})->f32[256,1024]{1,0}}

ENTRY main_spmd {
  x = f32[256,1024]{1,0} parameter(0), sharding={devices=[8,1]<=[8]}
  w = f32[1024,1024]{1,0} parameter(1), sharding={replicated}
  start = (f32[256,1024]{1,0}, f32[2048,1024]{1,0}) all-gather-start(x), channel_id=1, \
    replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}, use_global_device_ids=true
  y = f32[256,1024]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  gathered = f32[2048,1024]{1,0} all-gather-done(start)
  part = f32[256,1024]{1,0} slice(gathered), slice={[0:256], [0:1024]}
  ROOT out = f32[256,1024]{1,0} add(y, part)
}
"""

#: An all-reduce of two types, which goes over the links in two parts.
PARTS = """HloModule parts, num_partitions=4

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY main {
  x = f32[1024,512]{1,0} parameter(0)
  w = bf16[512,512]{1,0} parameter(1)
  y = f32[1024,512]{1,0} tanh(x)
  v = bf16[512,512]{1,0} cosine(w)
  sums = (f32[1024,512]{1,0}, bf16[512,512]{1,0}) all-reduce(y, v), channel_id=1, replica_groups=[1,4]<=[4], \
    use_global_device_ids=true, to_apply=add
  s = f32[1024,512]{1,0} get-tuple-element(sums), index=0
  t = bf16[512,512]{1,0} get-tuple-element(sums), index=1
  ROOT out = (f32[1024,512]{1,0}, bf16[512,512]{1,0}) tuple(s, t)
}
"""
