"""The cheapest choice among options with costs between pairs, within rows of memory, and a proof of how good it is.

Start with `problem` (what is asked and what is answered) and `solve.solve_choice`. Nothing here knows of layouts.
"""
