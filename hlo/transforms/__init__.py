"""Rewrites that say what an op or a form of HLO means in terms of simpler ones.

Readers and the lowering share them; one rewrite per file.
"""
