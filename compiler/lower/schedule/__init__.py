"""The order of kernels and collectives: memory, latency hiding, and the time of each step.

Start with `order_for_memory` and `schedule`; `kernel_costs` gives the costs of steps.
"""
