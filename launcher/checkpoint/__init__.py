"""Sharded checkpoints: every process writes its own shards as safetensors, an index says what lies where.

Start with `save` and `load`; `index` is the file that joins the parts.
"""
