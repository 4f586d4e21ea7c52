"""`shardc.Array`: global arrays whose shards lie on devices.

Start with `array` and `layout`; `reshard` changes layouts.
"""
