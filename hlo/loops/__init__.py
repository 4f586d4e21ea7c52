"""Analyses of loops.

Start with `loop_counter`, which finds the counter. `recurrence` finds the rows that a loop reads, writes and carries,
`step_maps` the map of one step on the carried values.
"""
