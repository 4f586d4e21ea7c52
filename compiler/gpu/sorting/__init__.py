"""Stable sorts and top-k on a grid.

Start with `sorting`; `merge_sort` is the algorithm.
"""
