"""Running a program file in this process or on ranks, with its inputs and outputs as files.

Start with `task`.
"""
