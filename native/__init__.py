"""LLVM for everybody: compiled code, elementary functions, the thread pool, the drive loop, and GPUs.

Nothing here knows programs or shardings. Start with `llvm.jit`, `threads.pool` and `drive.drive_loop`; `gpu` has a
GPU's side.
"""
