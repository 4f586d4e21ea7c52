"""Rewrites of the global program that let it partition better; one pass per file.

`shardc.partitioner.partition` lists their order.
"""
