"""Sorts along a split dimension: by exact splitters, or by columns."""
