"""Loops along the rows of split arrays.

Start with `split_recurrences`, the pass; `recurrence` is what a loop reads, writes and carries, `step_maps` how one
step maps what is carried, `composed_map` what many steps do, `shard_loops` the loops over each shard's rows.
"""
