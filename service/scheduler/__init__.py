"""The scheduler of the compile service: a durable queue of orders, each carried out once, and the state of every job.

`scheduler.py` is its interface, `open_jobs.py` has every change of a job's state, `journal.py` what is on disk.
"""
