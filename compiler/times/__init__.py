"""Times of a lowered program's kernels: by rooflines, by measured rates of this computer, or as measured.

Start with `step_times`; `host_times` asks the CPU's kernels how they cut their work.
"""
