"""Running totals on a grid, along rows and down columns.

Start with `scan`.
"""
