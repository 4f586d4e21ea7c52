"""The other side of the compile service: programs whose stages somebody else works out.

Start with `client` and `program`; `connection` and `transport` speak HTTP.
"""
