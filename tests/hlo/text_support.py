"""A module in HLO text that the tests of reader and printer share."""

FULL = """HloModule jit_step, is_scheduled=true, input_output_alias={ {0}: (0, {}, must-alias),
  {1}: (1, {}, may-alias) }, buffer_donor={ (1, {}) },
  entry_computation_layout={(f32[8,4]{1,0}, f32[4]{0})->(f32[8,4]{1,0}, f32[])},
  num_partitions=8, replica_count=2, allow_spmd_sharding_propagation_to_output={true,false}

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(f32[] %a, f32[] %b)  // a comment
}

ENTRY %main (x: f32[8,4], w: f32[4]) -> (f32[8,4], f32[]) {
  %x = f32[8,4]{1,0} parameter(0), sharding={devices=[4,2]<=[2,4]T(1,0)}, metadata={op_name="state['x']"}
  %w = f32[4]{0} parameter(1)
  %wide = f32[8,4]{1,0} broadcast(f32[4]{0} %w), dimensions={1}
  %y = f32[8,4]{1,0} multiply(%x, /* why */ %wide), metadata={op_name="jit(step)/mul"
    source_file="step.py" source_line=12}
  %zero = f32[] constant(0)
  %total = f32[] reduce(%y, %zero), dimensions={0,1}, to_apply=%add
  ROOT %out = (f32[8,4]{1,0}, f32[]) tuple(%y, %total), sharding={{replicated}, {devices=[4,2]0,1,2,3,4,5,6,7}}
}
"""
