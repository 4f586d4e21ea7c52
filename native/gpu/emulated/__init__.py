"""A GPU emulated on this machine's processor: every thread of a grid is a coroutine, races and stray accesses are
errors.

Start with `runtime`; `scheduler` runs a launch.
"""
