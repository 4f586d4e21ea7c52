"""LLVM for everybody: IR building, JIT, object cache, math functions, BLAS by address."""
