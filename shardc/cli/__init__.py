"""The command line.

Start with `app`; `commands` has one file per command.
"""
