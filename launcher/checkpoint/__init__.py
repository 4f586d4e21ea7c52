"""Sharded checkpoints: every process writes its own shards as safetensors, an index says what lies where."""
