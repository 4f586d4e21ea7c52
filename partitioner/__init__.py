"""Global program to per-device program.

Start with `partition`, the table of contents: prepare, decide layouts, rewrite, optimise collectives.
"""
