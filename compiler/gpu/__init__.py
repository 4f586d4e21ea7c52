"""Kernels for GPUs: `Lowered` to launches, library calls and host steps.

Start with `kernel`, the table of kernel emitters, and `function`, what each of them fills.
"""
