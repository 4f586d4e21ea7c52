"""Passes that can be run alone: the list of all passes and pipelines, the text that asks for them, and running them.

Start at `table` (what there is), then `parse` (``a,b{option=1}``) and `opt` (text in, text out).
"""
