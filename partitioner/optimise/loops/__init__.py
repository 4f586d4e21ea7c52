"""Collectives in loops: hoisted, sunk, prefetched or delayed by one iteration.

Start with `carry`, the form in which these passes see a loop.
"""
