"""Fourier transforms of any length, in double precision.

Start with `fourier`; `transforms` does one row.
"""
