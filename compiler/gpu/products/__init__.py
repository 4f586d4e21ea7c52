"""Matrix products and convolutions on a grid: by tensor cores, by threads, or by cuBLASLt.

Start with `product`; `plan` cuts it into tiles.
"""
