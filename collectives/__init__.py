"""What a collective means at run time, and the transports that carry it out.

Start with `call.call` and `call.transport`; each transport is a folder of its own.
"""
