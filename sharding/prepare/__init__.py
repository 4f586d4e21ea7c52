"""What happens to a program before propagation: markers say what they mean, pairs are closed, uses are split.

Start with `split_calls`; `markers` reads what custom calls say of shardings.
"""
