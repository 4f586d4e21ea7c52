"""What loops do.

Start with `loop_counter`, how they count; `recurrence` has which rows they read, write and carry, `step_maps` how one
step maps what is carried.
"""
