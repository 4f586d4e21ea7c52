"""Running: ranks, arrays, MPI jobs, virtual devices."""
