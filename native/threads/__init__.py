"""The thread pool that all compiled programs of a process share, and how threads and processes wait for each other.

Start with `pool`; `meeting` has the counters on which processes of a node wait.
"""
