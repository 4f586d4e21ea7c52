"""From a few annotations to a sharding for every value: axes, notations, factor rules and propagation.

Start with `rules.factor_rule`, what an operation says, and `propagate`, the steps from annotations to shardings.
"""
