"""Running a compiled step on this process's devices, collective by collective.

Start with `compiled` and `driver`; `step_tables` has the addresses that a step takes.
"""
