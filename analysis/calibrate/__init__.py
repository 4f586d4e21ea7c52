"""Measuring this computer through our own compiled code: programs, clocks, fits, and the file that comes of it.

Start with `calibrate`.
"""
