"""Everything that touches jaxlib's MLIR. Imports nothing of ours: it also runs in a child process.

Start with `worker`; `extract` writes a module as plain data.
"""
