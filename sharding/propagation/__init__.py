"""Propagation's parts: the graph of values and equations, the work list over it, and the way back to a module.

Start with `graph`; `engine` is the work list, `factor_step` one step, `projection` goes between dimensions and factors.
"""
