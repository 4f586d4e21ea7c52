"""LLVM for everybody: modules of IR become object files, and these become functions of this process.

Start with `jit`; `target` says what code is made for, `symbols` which outside functions it may call.
"""
