"""Windowed einsums: matrix products that compute with parts while other parts travel.

Start with `window_einsums`; `ring_time` decides when this pays.
"""
