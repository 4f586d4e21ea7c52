"""Factorisations and triangular solves, by LAPACK or by plain loops.

Start with `linalg`.
"""
