"""Routines: native code for operations of any sizes, compiled once on a machine and shared by all small programs.

`records` is what a program tells them, `routine_step` the step that goes through a program's calls, `products` the
code of matrix products, `sorting` that of sorts.
"""
