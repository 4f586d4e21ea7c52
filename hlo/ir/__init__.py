"""The program as data: modules of computations of instructions, types, meshes, shardings, and the op set.

Start with `ir`, then `types`, `opset` and `build`; `infer` has the shape rules.
"""
