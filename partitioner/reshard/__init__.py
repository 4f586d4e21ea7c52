"""From one layout of a value to another: moves, what they cost, and the search for the cheapest path.

Start with `moves` and `search`; `halo` and `rechunk` fetch intervals.
"""
