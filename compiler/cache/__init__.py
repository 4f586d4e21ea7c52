"""Compiled executables on disk, by content.

Start with `cache`; `serialize` is the file format, `evict` keeps the folder's size.
"""
