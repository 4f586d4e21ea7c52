"""Machines as data: devices, levels of links, and what was measured on a calibrated computer.

Start with `machine`; the TOML files beside it describe real ones.
"""
