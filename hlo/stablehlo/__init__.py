"""StableHLO in and out: MLIR text, bytecode and portable artifacts, through jaxlib.

Start with `reader`; `mlir` (in a process of its own) makes plain data of a module, `ops` makes HLO of that.
"""
