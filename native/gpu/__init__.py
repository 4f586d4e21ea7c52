"""GPUs: the code of one thread of a grid, targets, assemblers, and what a host does with a device.

Start with `grid` (what a thread's code may ask for) and `runtime` (memory, streams, launches); `cuda` and `emulated`
implement both.
"""
