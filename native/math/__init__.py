"""Elementary functions as LLVM IR, over vectors of any width, for CPUs and GPUs alike.

Start with `vector_math`, the table of functions; `vector` has the checked intrinsics that they are made of.
"""
