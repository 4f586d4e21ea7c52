"""Smaller programs of the same meaning: identities, constants, values computed once. Needs no target.

Start with `simplify`, which applies the rules in `rules` until none fits.
"""
