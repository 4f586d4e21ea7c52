"""Ahead of time: an executable as objects, C headers and sources that link without Python."""
