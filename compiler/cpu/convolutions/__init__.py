"""Convolutions: products of patches and kernel, depthwise ones, and Winograd's tiles.

Start with `convolution`; `roles` says which dimension is what.
"""
