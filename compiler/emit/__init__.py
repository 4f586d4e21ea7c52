"""`Lowered` to LLVM IR: the whole step as one resumable native function.

Start with `step`; `kernels` emits each distinct kernel once.
"""
