"""The public stages: `Program`, `Propagated`, `Partitioned`, and the drop-in `shardc.jit`.

Start with `stages`; each method calls one function of a lower room.
"""
