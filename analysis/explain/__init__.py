"""Why each collective of a partitioned program is there, what would remove it, and warnings.

Start with `explain`; `diagnostics` has one kind of warning per file.
"""
