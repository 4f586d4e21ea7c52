"""Ahead of time: an executable as objects, C headers and sources that link without Python.

Start with `bundle`, the list of files.
"""
