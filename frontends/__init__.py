"""Programs come in: JAX functions, NumPy functions, and files of HLO or StableHLO.

Start with `load` (files), `jax.frontend` and `numpy_functions`.
"""
