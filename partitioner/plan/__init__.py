"""Layouts for a whole program at once: the propagated ones are a start, what the user wrote is kept.

Start with `plan_layouts`. `tie_nodes` makes decisions of operations, `node_options` what each may do, `layout_problem`
and `memory_spans` the one problem that `strategy.solve` solves, `write_shardings` puts the answer onto the program.
"""
