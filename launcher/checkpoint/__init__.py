"""Sharded checkpoints: every process writes its own shards as safetensors, and an index has the place of each part.

Start with `save` and `load`; `index` is the file that joins the parts.
"""
