"""TensorFlow functions: the HLO that TensorFlow makes of them, with the names of their variables.

Start with `functions`.
"""
