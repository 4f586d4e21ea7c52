"""Lower a per-device program and emit native code for it."""
