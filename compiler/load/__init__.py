"""Executables as functions in this process: `step` for CPUs, `gpu` for what a program for GPUs needs."""
