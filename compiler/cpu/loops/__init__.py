"""Loop nests over the elements of a result: how loops are planned, vectorised and tiled.

Start with `mapping`; `loops` plans them.
"""
