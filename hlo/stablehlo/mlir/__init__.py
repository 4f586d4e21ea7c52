"""Everything that touches jaxlib's MLIR. Imports nothing of ours: it also runs in a child process."""
