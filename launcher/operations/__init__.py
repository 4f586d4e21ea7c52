"""NumPy's operations on arrays, computed where the shards lie: each call is a small program, compiled once.

Start with `call`; `operation` compiles and runs one.
"""
