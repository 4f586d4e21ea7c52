"""`jax.jit` on the devices of shardc: what `shardc.jit` is for functions of JAX.

Start with `jitted`; `devices` finds devices for a mesh, `meshes` says meshes and shardings in terms of them, and
`arguments` brings arguments from elsewhere to them.
"""
