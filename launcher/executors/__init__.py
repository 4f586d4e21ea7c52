"""Executors of tasks in other processes: children of this one, ranks of an MPI job, workers of a Dask cluster.

Start with `open_executor`; `child` is a process that does tasks under limits.
"""
