"""What a worker does: reads a program, carries out one order, and gives files back.

Start with `carry_out`, the table of kinds of orders.
"""
