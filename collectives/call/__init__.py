"""One collective as data: members, reduction, memory, order, and what a transport promises.

Start with `call` and `transport`.
"""
