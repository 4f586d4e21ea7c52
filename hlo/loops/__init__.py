"""What loops do: how they count (`loop_counter`), which rows they read, write and carry (`recurrence`), and how one
step maps what is carried (`step_maps`).
"""
