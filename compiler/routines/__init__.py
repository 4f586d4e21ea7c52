"""Small programs as tables of calls of routines (`shardc.native.routines`), for which no code is generated.

Start with `table`, which says what programs these are and why.
"""
