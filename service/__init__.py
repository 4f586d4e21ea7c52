"""The compile service: orders come in over HTTP, workers carry each out once, and a store keeps results by content.

Start with `serve` and `orders`; `client` is the other side.
"""
