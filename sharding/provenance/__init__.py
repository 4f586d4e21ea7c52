"""Why a value is laid out as it is, and what it did not get.

Start with `history`; `missed` tells the axes that a value was offered and did not take.
"""
