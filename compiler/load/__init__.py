"""Executables as functions in this process.

Start with `step`, for CPUs; `gpu` has what a program for GPUs needs.
"""
