"""NVIDIA's GPUs: the driver's functions, memory, modules, and the libraries cuBLASLt and NCCL.

Start with `runtime`, the implementation of `shardc.native.gpu.runtime.Runtime`.
"""
