"""Sweeps: which mesh and which annotations make a program fastest on a machine, predicted for all of them.

Start with `run`; `assess` predicts one candidate.
"""
