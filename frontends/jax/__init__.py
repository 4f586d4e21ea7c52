"""JAX programs: functions, jitted functions and JAX's own stages become modules with the function's pytrees.

Start with `frontend`; `callbacks`, `context` and `effects` are what tracing has to heed.
"""
