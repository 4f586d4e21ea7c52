"""NumPy's functions on traced values: one table per family of functions.

Start with `dispatch`, which merges the tables and receives NumPy's calls.
"""
