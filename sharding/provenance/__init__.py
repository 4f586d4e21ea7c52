"""Why a value is laid out as it is, and what it did not get.

Start with `history`; `missed` tells the axes that lost, `export` writes the program with its shardings.
"""
