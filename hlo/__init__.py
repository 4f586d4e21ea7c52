"""The program: types, meshes, IR, op set, readers, printers, verifier, evaluator, passes."""
