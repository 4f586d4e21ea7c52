"""Reductions, scans, sorts and selections along rows and columns.

Start with `reduction`; `rows` fuses reductions with what is around them.
"""
