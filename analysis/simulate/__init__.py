"""What a scheduled program takes on a described machine: time, links, memory, without hardware and without tensors.

Start with `run`; `engine` is the clock, `simulation` what comes out.
"""
