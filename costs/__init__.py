"""The one cost model: what machines can do, what collectives, kernels and memory cost on them.

Start with `machines.machine`, then `network.collective_cost` and `kernels.kernel_model`.
"""
