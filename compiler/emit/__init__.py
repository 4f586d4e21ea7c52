"""`Lowered` to an `Executable`: for CPUs one resumable native function, for GPUs steps that the host walks.

Start with `cpu_executable` and `step`, or with `gpu_executable`.
"""
