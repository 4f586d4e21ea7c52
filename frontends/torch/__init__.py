"""PyTorch modules and exported programs: a graph of ATen operators is traced by JAX and read as StableHLO.

Start with `frontend`; `operators` says what an operator means, `signature` how tensors come in and go out.
"""
