"""Elementwise arithmetic on LLVM values: integers, floats, complex numbers, conversions.

Start with `elementwise`; `registers` says what values are.
"""
