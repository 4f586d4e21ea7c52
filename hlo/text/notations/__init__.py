"""Shardings and device groups as text: GSPMD's tile assignments, named meshes, Shardy's notation.

Start with `tiles`; each file reads and prints one notation.
"""
