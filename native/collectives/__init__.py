"""Collectives without Python: reductions by a fixed tree, messages over MPI, and work on shared memory.

Start with `work` (memory that this process can address) and `messages` (other nodes).
"""
