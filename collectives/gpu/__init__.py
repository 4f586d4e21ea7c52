"""Collectives on the memory of GPUs: kernels over several devices' memory, NCCL, staging through the host."""
