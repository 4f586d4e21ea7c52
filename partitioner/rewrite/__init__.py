"""Writing the per-device program: global values become local ones, computation by computation.

Start with `body`; `emitter` writes instructions, `values` knows which layouts exist.
"""
