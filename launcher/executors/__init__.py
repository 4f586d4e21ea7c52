"""Where work of other processes is done: children of this one, ranks of an MPI job, workers of a Dask cluster."""
