"""Which instructions become one kernel.

Start with `fuse` and `fusion_rules`; `merge_kernels` joins kernels that read the same arrays.
"""
