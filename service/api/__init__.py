"""The HTTP interface of the service.

Start with `app`, the list of routes; `guard` is what every request passes.
"""
