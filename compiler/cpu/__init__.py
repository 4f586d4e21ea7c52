"""Kernels for CPUs: one LLVM function per instruction.

Start with `kernel`, which says which instruction goes to which emitter.
`function` is the general way, `body` and `emitter` what all of them share.
"""
