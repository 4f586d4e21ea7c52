"""Sorts of which little is read.

Start with `select_places`: a few known places; `sort_beginnings` is for one end.
"""
