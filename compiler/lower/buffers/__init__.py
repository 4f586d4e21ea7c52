"""From instructions to steps over buffers, and a place in memory for every buffer.

Start with `linearise`, `liveness` and `assign_buffers`.
"""
