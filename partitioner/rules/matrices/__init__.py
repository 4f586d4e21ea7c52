"""Factorisations of matrices whose rows are split, as programs of products, small factorisations and collectives.

Start with `tall_qr`; `matrix_writer` has the parts that the programs are made of.
"""
