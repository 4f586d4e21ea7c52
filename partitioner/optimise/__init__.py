"""Passes over a partitioned program that make its collectives fewer, cheaper or hidden.

One pass per file; `shardc.partitioner.partition` lists their order.
"""
