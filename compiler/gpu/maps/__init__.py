"""Maps over elements on a grid, transposed ones through shared memory.

Start with `maps`.
"""
