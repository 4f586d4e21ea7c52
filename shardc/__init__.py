"""shardc: a sharding compiler."""
