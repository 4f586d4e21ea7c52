"""What ATen operators mean, by families: tables from an operator's name to a function of JAX's arrays.

A row takes the operator's arguments as PyTorch passes them, with arrays for tensors and NumPy's types for PyTorch's;
devices, layouts and memory formats are None. A name without an overload (``aten.add``) stands for all overloads.
"""
