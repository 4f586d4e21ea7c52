"""Annotations that nobody has to think of: from a chosen layout of every value to the few that say it.

Start with `fewest_annotations`.
"""
