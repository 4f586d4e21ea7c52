"""Matrix products through BLAS in tiles, and tiny ones in registers.

Start with `contraction`, then `tiles`.
"""
