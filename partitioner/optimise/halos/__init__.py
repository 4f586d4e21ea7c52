"""What neighbours exchange: each element once, and of computed values what costs least to send.

Start with `exchange_operands` and `merge_permutes`, the passes; `boxes` are parts of arrays, `minimum_cut` decides.
"""
