"""Collectives on the memory of GPUs: kernels over several devices' memory, NCCL, staging through the host.

Start with `routes`, which says which way a program's collectives take.
"""
