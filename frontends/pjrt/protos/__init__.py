"""XLA's messages as classes, read and written in the wire format of protocol buffers, without their library.

Start with `messages`, the table of messages and their fields; `wire` reads and writes any of them.
"""
