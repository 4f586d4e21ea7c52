"""Partial sums as values: how they spread, which were only moved, and in which precision they add up.

Start with `linear`.
"""
