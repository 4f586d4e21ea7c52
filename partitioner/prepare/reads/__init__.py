"""Reads at known places of one array, together: shifts, pads and windows get what neighbours have in one exchange.

Start with `share_reads`, the pass; `static_reads` finds what is read of what, `extended` is an array with its margins.
"""
