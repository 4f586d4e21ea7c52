"""Choices that change speed and not values, measured on this machine.

Start with `tune`; `profile` says what a profiled step records.
"""
