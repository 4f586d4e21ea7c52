"""Sorts along a split dimension: by exact splitters, or by columns.

Start with `sample_sort`; `splitters` is the search of what goes where, `columns` the way for any comparator.
"""
