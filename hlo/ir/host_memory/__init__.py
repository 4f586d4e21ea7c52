"""Memory of the host: which values are there, and which operations carry them there and back.

`memory_kinds` says how types and custom calls name it, `host_moves` what moves are.
"""
