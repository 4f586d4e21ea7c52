"""Layouts of several operations decided together, before any of them is written.

Start with `region`; a region is decided by variable elimination (`eliminate_variables`).
"""
