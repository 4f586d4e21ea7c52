"""Scatter and select-and-scatter on a grid, by atomics or in order.

Start with `scatter`.
"""
