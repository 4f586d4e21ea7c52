"""StableHLO in and out: MLIR text, bytecode and portable artifacts, through jaxlib."""
