"""The client of the compile service: the stages of a program, worked out by a server.

Start with `client` and `program`; `connection` and `transport` speak HTTP.
"""
