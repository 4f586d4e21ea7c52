"""Values of our classes as plain data (what JSON can say) and back.

Start with `plain`; `codecs` has one codec per kind of type.
"""
