"""One file per command of ``shardc``.

Start with `partition`; `shardc.cli.app` puts the commands together.
"""
