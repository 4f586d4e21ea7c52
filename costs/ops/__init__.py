"""What each operation costs: one table keyed by opcode, its columns read by reports, device models and the host's.

Start with `op_cost`, which tells the columns; a family of the op set is a file, `table` joins them.
"""
