"""The work of a worker: it reads a program, carries out one order, and returns files.

Start with `carry_out`, the table of kinds of orders.
"""
