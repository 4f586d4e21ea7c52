"""HLO text: reader, printer and the comparison of two modules as they would be written.

Start with `reader` and `printer`; `attributes` has one row per kind of attribute, `notations` the forms of shardings.
"""
