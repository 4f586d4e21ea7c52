"""Loops over stencils that exchange wider halos less often.

Start with `widen_halos`, the pass; `grid` has arrays in blocks with margins, `iteration` a loop's body on them.
"""
