"""Small programs for command line tests."""

from __future__ import annotations

#: x [8,6] and w [6,10] on a 2x2 mesh: batch over the first axis, columns over the second; one all-reduce.
MLP = """HloModule mlp, num_partitions=4

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY main {
  x = f32[8,6]{1,0} parameter(0), sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}, metadata={op_name="x"}
  w = f32[6,10] parameter(1), sharding={devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}, metadata={op_name="w"}
  y = f32[8,10] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, \
    metadata={source_file="m.py" source_line=7}
  t = f32[8,10]{1,0} tanh(y)
  zero = f32[] constant(0)
  loss = f32[] reduce(t, zero), dimensions={0,1}, to_apply=sum, metadata={source_file="m.py" source_line=8}
  ROOT out = (f32[], f32[8,10]{1,0}) tuple(loss, t)
}
"""

#: No annotations, uneven sizes, an integer result.
PLAIN = """HloModule plain

ENTRY main {
  x = f32[7,5]{1,0} parameter(0), metadata={op_name="x"}
  n = s32[7]{0} parameter(1), metadata={op_name="n"}
  one = s32[] constant(1)
  ones = s32[7]{0} broadcast(one), dimensions={}
  m = s32[7]{0} add(n, ones)
  e = f32[7,5]{1,0} exponential(x)
  ROOT out = (f32[7,5]{1,0}, s32[7]{0}) tuple(e, m)
}
"""

#: bfloat16 in and out.
BF16 = """HloModule half

ENTRY main {
  x = bf16[8]{0} parameter(0), metadata={op_name="x"}
  ROOT y = bf16[8]{0} add(x, x)
}
"""
