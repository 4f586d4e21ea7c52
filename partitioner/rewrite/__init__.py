"""Writing the per-device program: global values become local ones, computation by computation.

Start with `body`; `scope` has what is known before, `accumulate` decides what loops carry partial.
"""
