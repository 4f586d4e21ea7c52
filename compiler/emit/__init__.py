"""`Lowered` to LLVM IR: the whole step as one resumable native function."""
