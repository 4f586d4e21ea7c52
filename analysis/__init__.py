"""What a program costs and why: simulation, explanations, reports, sweeps, calibration, drawings.

Start with `simulate.run` and `explain.explain`. Everything here takes modules and machines.
"""
