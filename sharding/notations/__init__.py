"""How people and other compilers say shardings: PartitionSpec, annotations by name, GSPMD's tile assignments.

Start with `partition_spec` and `annotate`.
"""
