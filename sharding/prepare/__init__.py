"""What happens to a program before propagation: its markers, groups, constraints and manual computations become plain
data.

Start with `prepare`, the list of these steps.
"""
