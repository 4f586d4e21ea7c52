"""Layouts for a whole program at once. The propagated layouts are the start, and the user's annotations are kept.

Start with `plan_layouts`. `tie_nodes` groups operations into decisions, `node_options` lists the options of each.
`layout_problem` and `memory_spans` make the problem that `strategy.solve` solves, and `write_shardings` writes the
answer onto the program.
"""
