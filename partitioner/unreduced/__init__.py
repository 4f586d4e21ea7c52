"""Partial sums as values: how they spread, where they are reduced, and in which precision.

Start with `linear`, then `accumulate`.
"""
