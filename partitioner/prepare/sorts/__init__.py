"""Sorts of which little is read.

Start with `select_places`: a few known places; `sort_beginnings` is for one end. `join_payloads` has what is read in
the order of a sort go along.
"""
