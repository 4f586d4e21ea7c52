"""Collectives on a machine's links: where a mesh lies, which algorithm is fastest, how long it takes.

Start with `collective_cost`; `placement` and `topology` say which links a group uses.
"""
