"""The cheapest choice among options with costs between pairs, within rows of memory, and a proof of how good it is.

Start with `problem` (the question and the answer) and `solve.solve_choice`. This package does not depend on layouts.
"""
