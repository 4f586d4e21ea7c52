"""What a program costs and why: simulation, explanations, reports, sweeps, calibration, figures.

Start with `simulate.run` and `explain.explain`; `figures` is the one door to matplotlib.
"""
