"""Running compiled programs on GPUs, or on their emulation."""
