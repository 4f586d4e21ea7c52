"""Running compiled programs on GPUs, or on their emulation.

Start with `driver`; `streams` puts a step's work into streams, `graphs` launches it again at once.
"""
