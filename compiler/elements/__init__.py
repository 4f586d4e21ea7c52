"""One element of any array from its index: index algebra and element rules that CPU and GPU kernels share.

Start with `elements` and `rules`; `affine` is the index algebra.
"""
