"""The page of the service: style, script and template; nothing from other servers.

Start with `files`, which puts the page together; the scripts lie beside it.
"""
