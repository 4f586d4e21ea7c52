"""Virtual devices: all devices of a program live in this process.

Start with `transport`, then `executor`.
"""
