"""Ranks of a job exchange messages over MPI, with a bounded wait.

Start with `transport` and `message_executor`; `functions` has the library's addresses for native code.
"""
