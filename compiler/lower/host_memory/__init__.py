"""Values in host memory: which they are, and the moves between host and device, as operations of their own.

`place_values` says what a program keeps where and adds the moves; `join_moves` makes them ready to be scheduled.
"""
