"""Kernels for GPUs: `Lowered` to launches, library calls and host steps.

Start with `compile` and `kernel`, the table of kernel emitters.
"""
