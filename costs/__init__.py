"""The one cost model: what machines can do, what operations, kernels, collectives and memory cost on them.

Start with `ops.op_cost` (the table of operations), `kernels.kernel_model` and `network.collective_cost`.
"""
