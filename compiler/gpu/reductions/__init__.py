"""Reductions of rows and columns on a grid, and row kernels such as softmax.

Start with `fold_plan`; `accumulate` combines threads by a fixed tree.
"""
