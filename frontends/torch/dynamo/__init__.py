"""Graphs of ``torch.compile``: names of their inputs, programs of them, and values that stay laid out between calls.

Start with `graphs`, which lowers a graph. `names` calls its inputs after the module's tensors, and `resident_values`
keeps values.
"""
