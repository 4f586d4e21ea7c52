"""The native functions that JAX calls, in the low-level language, and the records that its handles point to.

Start with `programs`.
"""
