"""Kernels on a device: the work of instructions, its time by a roofline, and the memory that a program needs.

Start with `kernel_model` and `work`; `traffic` counts bytes, `trips` says how often, `host_seconds` has measured rates.
"""
