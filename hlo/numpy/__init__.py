"""NumPy functions as programs: a plain function, run once on traced values, becomes a module.

Start with `trace` and `tracer`; `functions` has NumPy's functions by family.
"""
