"""Layouts of several operations decided together, before any of them is written.

Start with `region`; a region is decided by the solver of choices (`strategy/solve`).
"""
