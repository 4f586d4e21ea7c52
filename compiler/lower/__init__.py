"""Module to `Lowered`: simplify, canonicalise collectives, fuse, order, assign buffers. Needs no hardware."""
