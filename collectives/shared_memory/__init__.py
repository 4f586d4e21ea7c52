"""Ranks of one node address each other's memory; no message is sent.

Start with `transport` and `executor`; `plan` is what ranks agree on, `native_executor` the code without Python.
"""
