"""Kernels for GPUs: `Lowered` to launches, library calls and host steps."""
