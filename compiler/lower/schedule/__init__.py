"""The order of kernels and collectives: memory, latency hiding, and what each step takes.

Start with `order` and `schedule`; `kernel_costs` says what steps cost.
"""
