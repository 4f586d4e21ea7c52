"""Warnings of `explain`, one kind per file.

Start with `find`, the list of kinds; `survey` is what all of them look at.
"""
