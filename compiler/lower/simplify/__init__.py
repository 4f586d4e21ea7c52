"""Loops, products and reductions brought into the forms that run fastest.

One pass per file; `shardc.compiler.lower.pipeline` lists their order.
"""
