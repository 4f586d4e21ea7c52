"""NumPy's operations on arrays, computed on the devices of the shards: each call is a small program, compiled once.

Start with `call`; `operation` compiles and runs one.
"""
