"""Why each collective of a partitioned program is there, what would remove it, and warnings."""
