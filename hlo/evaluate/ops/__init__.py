"""What each op means, in NumPy: one table of functions per op family.

`shardc.hlo.evaluate` merges the tables; start with `elementwise`.
"""
