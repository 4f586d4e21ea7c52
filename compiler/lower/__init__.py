"""Module to `Lowered`: simplify, canonicalise collectives, fuse, order, assign buffers. Needs no hardware.

Start with `pipeline`, the list of passes, and `lowered`, what comes out.
"""
