"""Transports for jobs of several processes.

Start with `among_processes`. It is imported by processes that are part of such a job, and not before: the others would
wait for its protocols.
"""
