"""Collectives as lists of small steps that native code goes through, by one fixed reduction tree.

Start with `steps` and `plan_messages`; `engine_calls` is the form for memory of this process.
"""
