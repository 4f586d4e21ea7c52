"""Running compiled programs: MPI jobs, drivers, arrays, checkpoints, GPUs.

Start with `driver.compiled` and `jobs.job`.
"""
