"""MPI jobs: starting ranks, finding the library, binding cores, and naming the rank that fails.

Start with `mpiexec`, `job` and `watchdog`.
"""
