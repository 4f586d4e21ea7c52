"""From a per-device program to native code.

Start with `compile`, then `lower.pipeline`; `elements` has what CPU and GPU kernels share.
"""
