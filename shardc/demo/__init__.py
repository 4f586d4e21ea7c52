"""The bundled program: a transformer training step, partitioned over a 2x2 mesh, run and checked.

Start with `run`.
"""
