"""Passes over a partitioned program that make its collectives fewer."""
