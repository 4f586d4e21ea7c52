"""Ops and collectives become the few forms that later stages know; one pass per file.

`ops` writes single ops as programs of simpler ones.
"""
