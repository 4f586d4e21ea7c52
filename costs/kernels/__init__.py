"""Kernels on a device: operations, bytes, time by a roofline, and the memory that a program needs.

Start with `kernel_model`; `flops` and `traffic` count, `trips` says how often.
"""
