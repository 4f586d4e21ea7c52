"""PJRT's interface in C as records, for ctypes and for native code alike.

Start with `functions`, the table of functions. There is one class per structure, with its fields in their order; what
ends in Args has the name of its function. A structure's `struct_size` ends with its last field, without padding.
"""
