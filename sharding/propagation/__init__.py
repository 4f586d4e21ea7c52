"""Propagation: from a few annotations to a sharding for every value, by factor rules and a work list.

Start with `propagate`; `engine` is the work list, `factor_step` one step.
"""
