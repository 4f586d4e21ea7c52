"""The report of a program as one page that works from disk, and small pieces of it for notebooks.

Start with `write`; `gather` puts the page's data together.
"""
